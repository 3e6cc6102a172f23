// Messages as TensorFlow's own parser reads them, where that departs from protobuf. The rules are
// listed in wire/reference/example_compat.py, which this must equal in every result, status and
// offset.
//
// 1. `entries` goes through the whole message and notes where the Features of each column lie.
// 2. Then column by column, in the order of the columns, their values are read.
// 3. Kinds and numbers of values are judged after that (`finish`).
#include "example_fill.h"

namespace tensorwire {

namespace {

// Tags are compared as single bytes.
constexpr uint8_t kKeyTag = 0x0a, kValueTag = 0x12, kFieldTag = 0x0a, kListsTag = 0x12;
constexpr uint8_t kPackedTag = 0x0a, kFloatTag = 0x0d, kIntTag = 0x08;

int kind_of(uint8_t tag) {
  switch (tag) {
    case 0x0a:
      return kBytesList;
    case 0x12:
      return kFloatList;
    case 0x1a:
      return kInt64List;
    default:
      return kNoList;
  }
}

// Of lengths and tags the low 32 bits count.
bool varint32(Reader& r, uint64_t& value) {
  if (!r.varint(value, false)) return false;
  value &= 0xffffffffu;
  return true;
}

// The next `size` bytes, or as many of them as there are.
Span cut(const Reader& r, uint64_t size) {
  return {r.at, r.at + std::min<uint64_t>(size, static_cast<uint64_t>(r.end - r.at))};
}

// A message behind its length, which may run past the end. The reader stays where it begins.
bool message_of(Reader& r, Span& inside) {
  uint64_t size;
  if (!varint32(r, size)) return false;
  inside = cut(r, size);
  return true;
}

// Bytes behind their length, which must fit.
bool bytes_of(Reader& r, Span& bytes) {
  const uint8_t* begin = r.at;
  uint64_t size;
  if (!varint32(r, size)) return false;
  bytes = cut(r, size);
  if (bytes.size() != size) return r.fail(kTruncated, begin);
  r.at = bytes.end;
  return true;
}

bool expect(Reader& r, uint8_t tag) {
  if (r.done()) return r.fail(kTruncated, r.at);
  if (*r.at != tag) return r.fail(kUnknownField, r.at);
  r.at++;
  return true;
}

// Steps over a field between the parts of a message.
bool skip_field(Reader& r) {
  const uint8_t* begin = r.at;
  uint64_t tag, value;
  if (!varint32(r, tag)) return false;
  switch (tag & 7) {
    case kVarint:
      return varint32(r, value);
    case kFixed64:
      return r.fixed(8);
    case kFixed32:
      return r.fixed(4);
    case kLen:
      if (!varint32(r, value)) return false;
      if (value < uint64_t{1} << 31) r.at = cut(r, value).end;
      return true;
    default:
      return r.fail(kUnknownField, begin);
  }
}

// An entry of an Example's map: two fields, each a key or a value.
bool example_entry(Reader& r, Span& key, Span& value) {
  key = value = {r.at, r.at};
  for (int i = 0; i < 2; i++) {
    const uint8_t* begin = r.at;
    if (r.done()) return r.fail(kTruncated, begin);
    uint64_t tag;
    if (!varint32(r, tag)) return false;
    if (tag != kKeyTag && tag != kValueTag) return r.fail(kUnknownField, begin);
    if (!bytes_of(r, tag == kKeyTag ? key : value)) return false;
  }
  return r.done() || r.fail(kUnknownField, r.at);
}

// An entry of a SequenceExample's maps: a key, then a value.
bool sequence_entry(Reader& r, Span& key, Span& value) {
  if (!expect(r, kKeyTag) || !bytes_of(r, key)) return false;
  if (!expect(r, kValueTag) || !bytes_of(r, value)) return false;
  return r.done() || r.fail(kUnknownField, r.at);
}

class CompatFiller final : public Filler {
 public:
  CompatFiller(const ExampleDecoder& decoder, const uint8_t* data, size_t size,
               const Output* outputs)
      : Filler(decoder, data, size, outputs), values_(decoder.columns().size()) {}

 protected:
  bool read(Span span) override {
    if (!parts(span)) return false;
    for (size_t i = 0; i < values_.size(); i++) {
      if (values_[i].stamp != stamp_) continue;
      Cell& cell = new_cell(i);
      if (!(decoder_.columns()[i].list ? steps(i, cell) : feature(i, cell))) return false;
    }
    return finish();
  }

 private:
  // Where the values of a column's name lie in this record.
  struct Values {
    uint64_t stamp = 0;
    Span last;             // the last one
    Span last_set;         // the last one that is not empty, or an empty span
    const uint8_t* fault;  // the first one that is neither empty nor begins with a list, or null
  };

  bool parts(Span span) {
    Reader r = reader_of(data_, span);
    while (!r.done()) {
      const uint8_t tag = *r.at;
      const bool list = tag == kListsTag && decoder_.sequence();
      if (tag != kFieldTag && !list) {
        if (!skip_field(r)) return malformed(r);
        continue;
      }
      r.at++;
      Span part;
      if (!message_of(r, part)) return malformed(r);
      if (!entries(part, list)) return false;
      r.at = part.end;
    }
    return true;
  }

  bool entries(Span span, bool list) {
    Reader r = reader_of(data_, span);
    while (!r.done()) {
      Span entry, value;
      if (!expect(r, kFieldTag) || !message_of(r, entry)) return malformed(r);
      r.at = entry.end;
      int index = guess(entry, list, value);
      if (index == kUnknown) {
        Reader inside = reader_of(data_, entry);
        Span key;
        if (!(decoder_.sequence() ? sequence_entry : example_entry)(inside, key, value))
          return malformed(inside);
        index = learn({reinterpret_cast<const char*>(key.at), key.size()}, list);
      }
      positions_[list]++;
      if (index >= 0) note(values_[static_cast<size_t>(index)], value);
    }
    return true;
  }

  void note(Values& values, Span value) {
    if (values.stamp != stamp_) values = {stamp_, value, {value.at, value.at}, nullptr};
    values.last = value;
    if (!value.size()) return;
    values.last_set = value;
    if (!values.fault && kind_of(*value.at) == kNoList) values.fault = value.at;
  }

  bool feature(size_t index, Cell& cell) {
    const Values& values = values_[index];
    Span value = values.last;
    if (!decoder_.sequence()) {
      if (values.fault) return fail(kUnknownField, values.fault);
      if (decoder_.compat() == kUnsetIgnored) value = values.last_set;
      if (!value.size()) return true;
    }
    const Column& column = decoder_.columns()[index];
    Instance instance{column, outputs_[index], value.at, column.kind};
    if (!open(instance, row_)) return false;
    cell.present = true;
    Reader r = reader_of(data_, value);
    if (!r.done() && (!kind(instance, r) || !list(instance, r))) return false;
    close(instance, cell);
    return true;
  }

  // The next step begins where the values of the last one ended, not where its length said.
  bool steps(size_t index, Cell& cell) {
    const Column& column = decoder_.columns()[index];
    const Output& out = outputs_[index];
    size_t step = static_cast<size_t>(out.steps[row_]);
    cell.present = true;
    Reader r = reader_of(data_, values_[index].last);
    while (!r.done()) {
      uint64_t size;
      if (!expect(r, kFieldTag) || !varint32(r, size)) return malformed(r);
      if (size == 1) return fail(kTruncated, r.at);
      Instance instance{column, out, r.at, column.kind};
      if (!open(instance, step)) return false;
      if (size) {
        // A step of 2 bytes is an empty list, whose length may be padded and so go past them.
        Reader inside = reader_of(data_, size > 2 ? cut(r, size) : Span{r.at, r.end});
        if (!kind(instance, inside)) return false;
        if (instance.kind != column.kind) {  // the last one, since its end is not known
          close(instance, cell);
          break;
        }
        if (!(size > 2 ? list(instance, inside) : no_values(inside))) return false;
        r.at = inside.at;
      }
      step += close(instance, cell);
    }
    out.steps[row_ + 1] = static_cast<int64_t>(step);
    return true;
  }

  // The tag of a Feature's first list.
  bool kind(Instance& instance, Reader& r) {
    if (r.done()) return fail(kTruncated, r.at);
    instance.kind = kind_of(*r.at);
    if (instance.kind == kNoList) return fail(kUnknownField, r.at);
    r.at++;
    return true;
  }

  bool no_values(Reader& r) {
    const uint8_t* begin = r.at;
    uint64_t size;
    if (!varint32(r, size)) return malformed(r);
    return !size || fail(kTruncated, begin);
  }

  // A list behind its tag, if it is of the column's kind. The reader ends behind the last value.
  bool list(Instance& instance, Reader& r) {
    if (instance.kind != instance.column.kind) return true;
    uint64_t size;
    if (!varint32(r, size)) return malformed(r);
    Reader inside = reader_of(data_, cut(r, size));
    const bool strings_only = instance.kind == kBytesList;
    if (!(strings_only ? strings(instance, inside) : numbers(instance, inside, size)))
      return malformed(inside);
    r.at = inside.at;
    return true;
  }

  bool strings(Instance& instance, Reader& r) {
    while (!r.done()) {
      Span bytes;
      if (!expect(r, kFieldTag) || !bytes_of(r, bytes) || !string(instance, bytes)) return false;
    }
    return true;
  }

  // One packed run, or else only unpacked numbers. `size` is what the list says it has.
  bool numbers(Instance& instance, Reader& r, uint64_t size) {
    if (r.done()) return !size || !decoder_.sequence() || r.fail(kTruncated, r.at);
    if (*r.at == kPackedTag) return packed(instance, r);
    while (!r.done()) {
      if (!expect(r, instance.kind == kFloatList ? kFloatTag : kIntTag)) return false;
      const uint8_t* begin = r.at;
      if (instance.kind == kFloatList) {
        if (!r.fixed(4) || !floats(instance, begin, 1)) return false;
      } else {
        uint64_t value;
        if (!r.varint(value, false) || !ints(instance, r, {begin, r.at})) return false;
      }
    }
    return true;
  }

  bool packed(Instance& instance, Reader& r) {
    const uint8_t* begin = r.at++;
    uint64_t size;
    if (!varint32(r, size)) return false;
    Span run = cut(r, size);
    if (instance.kind == kInt64List) {
      r.at = run.end;
      return ints(instance, r, run);
    }
    if (decoder_.sequence()) {
      if (run.size() % 4) return r.fail(kBadPacked, begin);
    } else {
      if (size / 4 * 4 > run.size()) return r.fail(kTruncated, begin + 1);
      run.end = run.at + size / 4 * 4;
    }
    r.at = run.end;
    return floats(instance, run.at, run.size() / 4);
  }

  std::vector<Values> values_;
};

}  // namespace

std::unique_ptr<Filler> compat_filler(const ExampleDecoder& decoder, const uint8_t* data,
                                      size_t size, const Output* outputs) {
  return std::make_unique<CompatFiller>(decoder, data, size, outputs);
}

}  // namespace tensorwire
