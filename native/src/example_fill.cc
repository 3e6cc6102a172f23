#include "example_fill.h"

namespace tensorwire {

namespace {

uint64_t load64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}

}  // namespace

Filler::Filler(const ExampleDecoder& decoder, const uint8_t* data, size_t size,
               const Output* outputs)
    : decoder_(decoder),
      data_(data),
      limit_(data + size),
      outputs_(outputs),
      cells_(decoder.columns().size()) {}

bool Filler::message(Span span, size_t row) {
  row_ = row;
  if (!plan_.empty() && quick(span)) {
    result.strange |= plan_strange_;
    return true;
  }
  stamp_++;
  faulty_ = strange_ = false;
  positions_[0] = positions_[1] = 0;
  if (!read(span)) return false;
  result.strange |= strange_;
  if (learned_) make_plan();
  return true;
}

// A plan for records that look like this one. A file without such records stops trying.
void Filler::make_plan() {
  learned_ = false;
  plan_.clear();
  const std::vector<Guess>& guesses = guesses_[0];
  if (decoder_.sequence() || guesses.size() != positions_[0] || guesses.size() > kMostSteps) return;
  if (++plans_ > kMostPlans) return;
  std::vector<bool> seen(decoder_.columns().size());
  plan_strange_ = false;
  for (const Guess& guess : guesses) {
    plan_strange_ |= guess.column < 0;
    const size_t head = guess.head.size();
    Step step{{0, 0}, {0, 0}, head, head > 16 ? &guess.head : nullptr, guess.column, kNoList, 0};
    if (guess.column >= 0) {
      const size_t index = static_cast<size_t>(guess.column);
      if (seen[index]) {  // twice in one record: which one counts, the reader knows
        plan_.clear();
        return;
      }
      seen[index] = true;
      step.kind = decoder_.columns()[index].kind;
      step.tags = static_cast<uint64_t>(step.kind << 3 | kLen) << 8 | uint64_t{0x0a} << 24;
    }
    uint8_t bytes[16] = {}, mask[16] = {};
    std::memcpy(bytes, guess.head.data(), std::min<size_t>(head, 16));
    std::memset(mask, 0xff, std::min<size_t>(head, 16));
    std::memcpy(step.words, bytes, 16);
    std::memcpy(step.masks, mask, 16);
    plan_.push_back(step);
  }
  absent_.clear();
  for (size_t i = 0; i < seen.size(); i++)
    if (!seen[i]) absent_.push_back(i);
}

// A record that is as planned. Loads may go past it, so the reader reads the last ones of a buffer.
bool Filler::quick(Span span) {
  Span features;
  if (limit_ - span.end < 80 || !is_one_field(span, 0x0a, features)) return false;
  const uint8_t* at = features.at;
  for (const Step& step : plan_) {
    if (features.end - at < 4 || *at != 0x0a) return false;
    size_t size = at[1];
    const uint8_t* entry = at + 2;
    if (size >= 0x80) {
      if (at[2] >= 0x80) return false;
      size = (size & 0x7f) | static_cast<size_t>(at[2]) << 7;
      entry++;
    }
    if (size > static_cast<size_t>(features.end - entry) || size <= step.head) return false;
    const uint64_t low = (load64(entry) ^ step.words[0]) & step.masks[0];
    const uint64_t high = (load64(entry + 8) ^ step.words[1]) & step.masks[1];
    if (low | high) return false;
    if (step.text && !same_bytes(text_of(entry), step.text->data(), step.head)) return false;
    at = entry + size;
    const uint8_t* value = entry + step.head;
    const size_t length = size - step.head - 1;  // of the Feature, if its own length takes one byte
    Span run;
    if (length < 0x80 && length >= 4) {
      // All five bytes before the values follow from the entry's size.
      const uint64_t usual = step.tags | length | (length - 2) << 16 | uint64_t{length - 4} << 32;
      if (step.column < 0 ? *value != length : ((load64(value) ^ usual) & 0xffffffffff) != 0)
        return false;
      run = {value + 5, at};
    } else {
      Span inner, list;
      if (!is_one_field({value - 1, at}, 0x12, inner)) return false;
      const uint8_t tag = static_cast<uint8_t>(step.kind << 3 | kLen);
      if (step.column >= 0 && (!is_one_field(inner, tag, list) || !is_one_field(list, 0x0a, run)))
        return false;
    }
    if (step.column >= 0 && !quick_values(static_cast<size_t>(step.column), step.kind, run))
      return false;
  }
  if (at != features.end) return false;
  for (const Step& step : plan_)
    if (step.column >= 0) outputs_[step.column].present[row_] = 1;
  for (const size_t index : absent_) {
    outputs_[index].present[row_] = 0;
    if (!missing(index)) {
      result = {kOk, 0, result.done, 0, 0, result.strange};  // the reader says what is wrong
      return false;
    }
  }
  return true;
}

int Filler::learn(std::string_view name, bool list) {
  std::vector<Guess>& guesses = guesses_[list];
  const size_t position = positions_[list], size = name.size();
  const int column = decoder_.find(name, list);
  // Those that follow are looked up each time.
  if (position > guesses.size() || position >= 4096 || size >= 0x80) return column;
  const std::string key{'\x0a', static_cast<char>(size)};
  Guess guess{(key + std::string(name)).append(1, '\x12'), column};
  learned_ = true;
  plan_.clear();  // which points into the guesses
  if (position < guesses.size())
    guesses[position] = std::move(guess);
  else
    guesses.push_back(std::move(guess));
  return column;
}

bool Filler::finish() {
  if (faulty_)
    for (size_t i = 0; i < cells_.size(); i++)
      if (cells_[i].stamp == stamp_ && cells_[i].fault != kOk) {
        result.column = i;
        result.found = cells_[i].found;
        return fail(cells_[i].fault, cells_[i].where);
      }
  for (size_t i = 0; i < cells_.size(); i++) {
    const bool present = cells_[i].stamp == stamp_ && cells_[i].present;
    outputs_[i].present[row_] = present;
    if (!present && !missing(i)) return false;
  }
  return true;
}

bool Filler::missing(size_t index) {
  const Column& column = decoder_.columns()[index];
  const Output& out = outputs_[index];
  if (out.steps) {
    out.steps[row_ + 1] = out.steps[row_];
  } else if (out.splits) {
    out.splits[row_ + 1] = out.splits[row_];
  } else {
    const size_t length = static_cast<size_t>(column.length), first = row_ * length;
    if (column.places) {
      if (!fits(first, length, out.values_room / 2)) return no_space(column);
      std::memset(out.values + 16 * first, 0, 16 * length);
    } else if (column.kind == kBytesList) {
      if (!fits(first, length + 1, out.offsets_room)) return no_space(column);
      for (size_t i = 0; i < length; i++) out.offsets[first + i + 1] = out.offsets[first];
    } else {
      const size_t item = column.kind == kFloatList ? 4 : 8;
      if (!fits(first, length, out.values_room)) return no_space(column);
      std::memset(out.values + item * first, 0, item * length);
    }
  }
  return true;
}

}  // namespace tensorwire
