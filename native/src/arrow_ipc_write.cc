#include "arrow_ipc_write.h"

#include <cstring>

namespace tensorwire {
namespace {

enum Type { kInt = 2, kFloat = 3, kFixedBinary = 15, kFixedList = 16 };
constexpr int kVersion = 4;  // the fifth, of Arrow 1.0

struct Slot {
  int size;  // bytes; 0 for a field that the table does not have
  int64_t value;
};
constexpr Slot kNone{0, 0};
constexpr Slot kOffset{4, 0};  // to be pointed at what follows

class Builder {
 public:
  Builder() { append(0, 4); }
  std::string take() {
    align(8, 0);
    return std::move(out_);
  }

  void point(size_t from) { put(from, out_.size() - from, 4); }
  void root() { point_at(0, last_); }

  // A table, its vtable right before it: some readers look nowhere else, so none is shared. Fields
  // lie by their size, largest first. Returns where each field is.
  std::vector<size_t> table(const std::vector<Slot>& slots) {
    size_t end = 4, count = 0;
    std::vector<size_t> places(slots.size(), 0);
    for (const int size : {8, 4, 2, 1})
      for (size_t i = 0; i < slots.size(); i++)
        if (slots[i].size == size) {
          end = (end + static_cast<size_t>(size) - 1) / static_cast<size_t>(size) *
                static_cast<size_t>(size);
          places[i] = end;
          end += static_cast<size_t>(size);
          count = count > i + 1 ? count : i + 1;
        }
    std::string vtable(4 + 2 * count, '\0');
    const auto short_at = [&](size_t at, size_t value) {
      vtable[at] = static_cast<char>(value);
      vtable[at + 1] = static_cast<char>(value >> 8);
    };
    short_at(0, vtable.size());
    short_at(2, end);
    for (size_t i = 0; i < count; i++) short_at(4 + 2 * i, places[i]);
    align(2, 0);
    const size_t before = out_.size();
    out_ += vtable;
    align(8, 0);
    last_ = out_.size();
    append(static_cast<int64_t>(last_ - before), 4);
    out_.resize(last_ + end, '\0');
    for (size_t i = 0; i < slots.size(); i++) {
      if (!slots[i].size) continue;
      places[i] += last_;
      put(places[i], static_cast<uint64_t>(slots[i].value), slots[i].size);
    }
    return places;
  }

  void point_at(size_t from, size_t target) { put(from, target - from, 4); }
  size_t last() const { return last_; }

  void text(size_t from, std::string_view value) {
    align(4, 0);
    point(from);
    append(static_cast<int64_t>(value.size()), 4);
    out_.append(value).push_back('\0');
  }

  // A vector of offsets; returns where the first is.
  size_t offsets(size_t from, size_t count) {
    align(4, 0);
    point(from);
    append(static_cast<int64_t>(count), 4);
    out_.resize(out_.size() + 4 * count, '\0');
    return out_.size() - 4 * count;
  }

  // The length of a vector whose items are aligned to 8.
  void structs(size_t from, size_t count) {
    align(8, 4);
    point(from);
    append(static_cast<int64_t>(count), 4);
  }

  void append(int64_t value, int size) {
    out_.resize(out_.size() + static_cast<size_t>(size));
    put(out_.size() - static_cast<size_t>(size), static_cast<uint64_t>(value), size);
  }

 private:
  void align(size_t to, size_t ahead) {
    while ((out_.size() + ahead) % to) out_.push_back('\0');
  }
  void put(size_t at, uint64_t value, int size) {
    for (int i = 0; i < size; i++)
      out_[at + static_cast<size_t>(i)] = static_cast<char>(value >> 8 * i);
  }
  std::string out_;
  size_t last_ = 0;
};

void write_pairs(Builder& out, size_t from, const std::vector<IpcPair>& pairs) {
  size_t at = out.offsets(from, pairs.size());
  for (const IpcPair& pair : pairs) {
    const std::vector<size_t> places = out.table({kOffset, kOffset});
    out.point_at(at, out.last());
    at += 4;
    out.text(places[0], pair.key);
    out.text(places[1], pair.value);
  }
}

size_t write_field(Builder& out, size_t from, const std::vector<IpcField>& fields, size_t i) {
  const IpcField& field = fields[i++];
  const Slot inside = field.children ? kOffset : kNone,
             pairs = field.pairs.empty() ? kNone : kOffset;
  const std::vector<size_t> places =
      out.table({kOffset, {1, 1}, {1, field.kind}, kOffset, kNone, inside, pairs});
  out.point_at(from, out.last());
  out.text(places[0], field.name);
  if (field.kind == kInt)
    out.table({{4, field.width}, {1, field.is_signed}});
  else if (field.kind == kFloat)
    out.table({{2, field.width}});
  else if (field.kind == kFixedList || field.kind == kFixedBinary)
    out.table({{4, field.width}});
  else
    out.table({});
  out.point_at(places[3], out.last());
  if (field.children) {
    size_t at = out.offsets(places[5], field.children);
    for (size_t child = 0; child < field.children; child++, at += 4)
      i = write_field(out, at, fields, i);
  }
  if (!field.pairs.empty()) write_pairs(out, places[6], field.pairs);
  return i;
}

void write_schema(Builder& out, size_t from, const IpcSchema& schema) {
  const std::vector<size_t> places =
      out.table({kNone, kOffset, schema.pairs.empty() ? kNone : kOffset});
  out.point_at(from, out.last());
  size_t top = 0, i = 0;
  for (size_t at = 0; at < schema.fields.size(); top++) {
    size_t skip = 1;
    for (; skip; skip--) skip += schema.fields[at++].children;
  }
  for (size_t at = out.offsets(places[1], top); i < schema.fields.size(); at += 4)
    i = write_field(out, at, schema.fields, i);
  if (!schema.pairs.empty()) write_pairs(out, places[2], schema.pairs);
}

void write_numbers(Builder& out, size_t from, const std::vector<IpcNumbers>& numbers) {
  out.structs(from, numbers.size());
  for (const IpcNumbers& pair : numbers) {
    out.append(pair.first, 8);
    out.append(pair.second, 8);
  }
}

}  // namespace

bool adds_up(const std::vector<IpcField>& fields) {
  std::vector<size_t>
      open;  // for each field that we are inside of, how many of its children are still to come
  for (const IpcField& field : fields) {
    while (!open.empty() && open.back() == 0) open.pop_back();
    if (!open.empty()) open.back()--;
    open.push_back(field.children);
    if (open.size() > kIpcDepth) return false;
  }
  for (const size_t missing : open)
    if (missing) return false;
  return true;
}

std::string write_ipc_schema(const IpcSchema& schema) {
  Builder out;
  const std::vector<size_t> places = out.table({{2, kVersion}, {1, 1}, kOffset, {8, 0}});
  out.root();
  write_schema(out, places[2], schema);
  return out.take();
}

std::string write_ipc_batch(int64_t length, const std::vector<IpcNumbers>& nodes,
                            const std::vector<IpcNumbers>& buffers, int codec, int64_t body) {
  Builder out;
  const std::vector<size_t> message = out.table({{2, kVersion}, {1, 3}, kOffset, {8, body}});
  out.root();
  const std::vector<size_t> places =
      out.table({{8, length}, kOffset, kOffset, codec < 0 ? kNone : kOffset});
  out.point_at(message[2], out.last());
  write_numbers(out, places[1], nodes);
  write_numbers(out, places[2], buffers);
  if (codec >= 0) {
    out.table({{1, codec}});
    out.point_at(places[3], out.last());
  }
  return out.take();
}

std::string write_ipc_footer(const IpcSchema& schema, const std::vector<IpcBlock>& batches) {
  Builder out;
  const std::vector<size_t> places = out.table({{2, kVersion}, kOffset, kOffset, kOffset});
  out.root();
  write_schema(out, places[1], schema);
  out.structs(places[2], 0);
  out.structs(places[3], batches.size());
  for (const IpcBlock& block : batches) {
    out.append(block.offset, 8);
    out.append(block.length, 8);
    out.append(block.body, 8);
  }
  return out.take();
}

}  // namespace tensorwire
