// Lists of lists of numbers (json_scan.h) into memory, and the way past what is none.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "json_numbers.h"
#include "json_scan.h"
#include "protobuf.h"

namespace tensorwire {
namespace {

using scan::with_reader;

inline const uint8_t* skip_space(const uint8_t* p, const uint8_t* end) {
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
  return p;
}

constexpr size_t kAny = SIZE_MAX;

// What is known of nested lists, before or after they are read.
struct Lists {
  uint8_t* out;
  size_t room;  // elements
  bool fixed;   // the shape is given
  bool ragged = false;
  size_t most = kAny;  // elements
  int leaf = -1;       // how deep the elements are
  size_t lengths[kMaxJsonRank];
  std::vector<int64_t>* splits = nullptr;
  size_t count = 0;  // elements so far
  int deepest = 0;   // lists

  Lists(uint8_t* to, size_t space, bool given) : out(to), room(space), fixed(given) {
    std::fill_n(lengths, kMaxJsonRank, kAny);
  }

  int grow(size_t width, size_t text) {  // `text` bytes are left, and an element takes two at least
    if (count == most) return kOverLimit;
    const size_t more =
        std::min({room + std::max(room, text / 16 + 16), room + text / 2 + 1, most});
    auto* moved = static_cast<uint8_t*>(std::realloc(out, more * width));
    if (!moved) return kNoSpace;
    out = moved;
    room = more;
    return kOk;
  }
};

template <class Reader>
JsonOutcome read_lists(const uint8_t* text, size_t size, size_t start, const Reader& reader,
                       Lists& lists) {
  const uint8_t *p = text + start, *end = text + size;
  size_t counts[kMaxJsonRank];
  int depth = 0;
  const auto fault = [&](int status) {
    return JsonOutcome{status, static_cast<size_t>(p - text), 0};
  };
  const int uneven = lists.fixed ? kWrongShape : kRagged,
            other_depth = lists.fixed ? kWrongShape : kMixedDepth;
  for (;;) {
    p = skip_space(p, end);
    if (p == end) return fault(kTruncated);
    if (*p == '[') {
      if (depth == kMaxJsonRank) return fault(kTooDeep);
      if (lists.leaf >= 0 && depth >= lists.leaf) return fault(other_depth);
      if (depth && counts[depth - 1] == lists.lengths[depth - 1]) return fault(uneven);
      counts[depth++] = 0;
      lists.deepest = std::max(lists.deepest, depth);
      p = skip_space(p + 1, end);
      if (p == end) return fault(kTruncated);
      if (*p != ']') continue;
    } else {
      if (*p == ']' || *p == ',' || *p == '}') return fault(kBadJson);
      if (lists.leaf < 0 && lists.deepest == depth) lists.leaf = depth;
      if (depth != lists.leaf) return fault(other_depth);
      const size_t most = depth ? lists.lengths[depth - 1] : 1, before = lists.count;
      for (;;) {
        if (lists.count - before == most) return fault(uneven);
        if (lists.count == lists.room)
          if (const int status =
                  lists.fixed ? kNoSpace : lists.grow(Reader::kWidth, static_cast<size_t>(end - p));
              status != kOk)
            return fault(status);
        if (const int status = reader.read(p, end, lists.out, lists.count); status != kOk)
            [[unlikely]]
          return fault(p < end && *p == '[' ? other_depth : status);
        lists.count++;
        if (!depth) return {kOk, 0, static_cast<size_t>(p - text)};
        if (p == end || (*p != ',' && *p != ']')) p = skip_space(p, end);
        if (p == end) return fault(kTruncated);
        if (*p != ',') break;
        p++;
        if (p < end && *p <= ' ') p = skip_space(p, end);
      }
      if (*p != ']') return fault(kBadJson);
      counts[depth - 1] = lists.count - before;
    }
    while (*p == ']') {  // each list that ends here
      const int level = --depth;
      size_t& length = lists.lengths[level];
      if (lists.ragged && level) {
        std::vector<int64_t>& splits = lists.splits[level];
        if (splits.empty()) splits.push_back(0);
        splits.push_back(splits.back() + static_cast<int64_t>(counts[level]));
      } else if (length == kAny) {
        length = counts[level];
      } else if (length != counts[level]) {
        return fault(uneven);
      }
      p++;
      if (!depth) return {kOk, 0, static_cast<size_t>(p - text)};
      counts[depth - 1]++;
      p = skip_space(p, end);
      if (p == end) return fault(kTruncated);
    }
    if (*p != ',') return fault(kBadJson);
    p++;
  }
}

}  // namespace

JsonOutcome read_json_shape(const uint8_t* text, size_t size, size_t at, JsonKind kind,
                            const size_t* dims, int rank, void* out) {
  size_t count = 1;
  for (int i = 0; i < rank; i++) count *= dims[i];
  Lists lists(static_cast<uint8_t*>(out), count, true);
  lists.leaf = rank;
  std::copy_n(dims, rank, lists.lengths);
  return with_reader(kind, text,
                     [&](const auto& reader) { return read_lists(text, size, at, reader, lists); });
}

JsonOutcome read_json_any(const uint8_t* text, size_t size, size_t at, JsonKind kind, bool ragged,
                          size_t most, JsonArray& out) {
  Lists lists(nullptr, 0, false);
  lists.ragged = ragged;
  lists.most = most;
  lists.splits = out.splits;
  JsonOutcome outcome;
  try {
    outcome = with_reader(
        kind, text, [&](const auto& reader) { return read_lists(text, size, at, reader, lists); });
  } catch (const std::bad_alloc&) {
    outcome = {kNoSpace, at, 0};
  }
  out.values = lists.out;
  out.count = lists.count;
  out.room = lists.room;
  out.rank = lists.leaf < 0 ? lists.deepest : lists.leaf;
  std::copy_n(lists.lengths, out.rank, out.dims);
  return outcome;
}

JsonSkipped skip_json(const uint8_t* text, size_t size, size_t at, int most_depth,
                      bool past_dollars) {
  int depth = 0, deepest = 0;
  for (size_t i = at; i < size; i++) {
    switch (text[i]) {
      case '[':
      case '{':
        if (depth == most_depth) return {kTooDeep, i, deepest, false};
        deepest = std::max(deepest, ++depth);
        break;
      case ']':
      case '}':
        if (--depth <= 0) return {depth ? kBadJson : kOk, i + !depth, deepest, false};
        break;
      case '"':
        if (!past_dollars && i + 1 < size && text[i + 1] == '$') return {kOk, i, deepest, true};
        for (i++; i < size && text[i] != '"'; i++) i += text[i] == '\\';
        break;
      default:
        if (!depth) return {kBadJson, i, deepest, false};
    }
  }
  return {kTruncated, size, deepest, false};
}

}  // namespace tensorwire
