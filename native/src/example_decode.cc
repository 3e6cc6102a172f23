// Messages by protobuf's rules. Bytes are read in their order, and the first fault met is reported.
#include "example_decode.h"

#include <algorithm>
#include <tuple>

#include "example_fill.h"
#include "example_walk.h"
#include "tfrecord.h"

namespace tensorwire {

namespace {

class ProtobufFiller final : public Filler {
 public:
  using Filler::Filler;

 protected:
  bool read(Span span) override {
    Reader r = reader_of(data_, span);
    while (!r.done()) {
      unsigned field, wire;
      if (!r.tag(field, wire)) return malformed(r);
      if (wire != kLen || (field != 1 && (field != 2 || !decoder_.sequence()))) {
        strange_ = true;
        if (!r.skip(field, wire)) return malformed(r);
        continue;
      }
      uint64_t size;
      if (!read_length(r, size)) return malformed(r);
      const Span part{r.at, r.at + size};
      if (!entries(part, field == 2)) return false;
      r.at = part.end;
    }
    return finish();
  }

 private:
  bool entries(Span span, bool list) {
    Reader r = reader_of(data_, span);
    const bool ok = each_message(
        r, 1,
        [&](Span entry) {
          Span value;
          int index = guess(entry, list, value);
          const bool usual = index != kUnknown;
          if (!usual) {
            if (!read_entry(r, entry, entry_)) return false;
            index = learn(entry_.key, list);
            value = entry_.value;
          }
          positions_[list]++;
          if (index < 0) {
            strange_ = true;
            return true;
          }
          const Span* values = usual || entry_.usual ? &value : entry_.values.data();
          const size_t count = usual || entry_.usual ? 1 : entry_.values.size();
          const size_t number = static_cast<size_t>(index);
          Cell& cell = new_cell(number);
          return list ? steps(number, values, count, cell) : feature(number, values, count, cell);
        },
        &strange_);
    return ok || malformed(r);
  }

  bool feature(size_t index, const Span* values, size_t count, Cell& cell) {
    Instance instance{decoder_.columns()[index], outputs_[index], nullptr};
    if (!open(instance, row_)) return false;
    for (size_t i = 0; i < count; i++)
      if (!lists(instance, values[i])) return false;
    if (instance.kind == kNoList) return true;
    cell.present = true;
    close(instance, cell);
    return true;
  }

  bool steps(size_t index, const Span* values, size_t count, Cell& cell) {
    const Column& column = decoder_.columns()[index];
    const Output& out = outputs_[index];
    size_t step = static_cast<size_t>(out.steps[row_]);
    cell.present = true;
    for (size_t i = 0; i < count; i++) {
      Reader r = reader_of(data_, values[i]);
      const bool ok = each_message(r, 1, [&](Span value) {
        Instance instance{column, out, nullptr};
        if (!open(instance, step) || !lists(instance, value)) return false;
        step += close(instance, cell);
        return true;
      });
      if (!ok) return malformed(r);
    }
    out.steps[row_ + 1] = static_cast<int64_t>(step);
    return true;
  }

  bool lists(Instance& instance, Span span) {
    instance.where = span.at;
    Span list;
    const uint8_t tag = static_cast<uint8_t>(instance.column.kind << 3 | kLen);
    if (instance.kind == kNoList && is_one_field(span, tag, list)) {
      instance.kind = instance.column.kind;
      return values(instance, list);
    }
    Reader r = reader_of(data_, span);
    const bool ok = each_list(r, [&](int kind, Span list) {
      if (kind != instance.kind) {  // of a oneof the last one counts
        instance.kind = kind;
        instance.count = 0;
        instance.used = instance.base;
      }
      return kind != instance.column.kind || values(instance, list);
    });
    return ok || malformed(r);
  }

  bool values(Instance& instance, Span list) {
    Reader r = reader_of(data_, list);
    bool ok;
    Span run;
    if (instance.kind == kBytesList) {
      ok = each_string(r, [&](Span from) { return string(instance, from); });
    } else if (instance.kind == kFloatList) {
      const auto take = [&](const uint8_t* from, size_t count) {
        return floats(instance, from, count);
      };
      const bool usual = is_one_field(list, 0x0a, run) && run.size() % 4 == 0;
      ok = usual ? take(run.at, run.size() / 4) : each_float_run(r, take);
    } else {
      const auto take = [&](Span from) { return ints(instance, r, from); };
      ok = is_one_field(list, 0x0a, run) ? take(run) : each_int_run(r, take);
    }
    return ok || malformed(r);
  }

  Entry entry_;
};

}  // namespace

ExampleDecoder::ExampleDecoder(std::vector<Column> columns, bool sequence, Compat compat)
    : columns_(std::move(columns)), sorted_(columns_.size()), sequence_(sequence), compat_(compat) {
  for (size_t i = 0; i < sorted_.size(); i++) sorted_[i] = static_cast<int>(i);
  std::sort(sorted_.begin(), sorted_.end(), [&](int a, int b) {
    return std::tie(columns_[a].list, columns_[a].name) <
           std::tie(columns_[b].list, columns_[b].name);
  });
}

int ExampleDecoder::find(std::string_view name, bool list) const {
  const auto at =
      std::lower_bound(sorted_.begin(), sorted_.end(), name, [&](int a, std::string_view b) {
        return columns_[a].list != list ? columns_[a].list < list
                                        : std::string_view(columns_[a].name) < b;
      });
  return at != sorted_.end() && columns_[*at].list == list && columns_[*at].name == name ? *at : -1;
}

Decoded ExampleDecoder::decode(const uint8_t* data, size_t size, const int64_t* starts,
                               const int64_t* sizes, size_t count, size_t row, size_t rows,
                               const Output* outputs, bool checked) const {
  std::unique_ptr<Filler> filler;
  if (compat_ == kProtobuf)
    filler = std::make_unique<ProtobufFiller>(*this, data, size, outputs);
  else
    filler = compat_filler(*this, data, size, outputs);
  Decoded& result = filler->result;
  count = std::min(count, row < rows ? rows - row : 0);
  const size_t footer = checked ? 0 : kFrameFooter;
  for (size_t known = 0; result.done < count; result.done++, row++) {
    if (result.done == known) {  // a few records ahead: their checksums are quicker together, and
                                 // they are still in the cache when they are read
      for (const size_t ahead = std::min(known + 6, count); known < ahead; known++) {
        const uint64_t start = static_cast<uint64_t>(starts[known]),
                       length = static_cast<uint64_t>(sizes[known]);
        if (start > size || length > size - start || size - start - length < footer) break;
      }
      const size_t inside = known - result.done;
      if (!checked)
        known =
            result.done + first_bad_data(data, starts + result.done, sizes + result.done, inside);
      if (known == result.done) {
        result.status = inside ? kBadDataCrc : kTruncated;
        result.offset = static_cast<size_t>(starts[known]);
        break;
      }
    }
    const uint8_t* at = data + starts[result.done];
    if (!filler->message({at, at + sizes[result.done]}, row)) break;
  }
  result.strange &= compat_ == kProtobuf;
  return result;
}

}  // namespace tensorwire
