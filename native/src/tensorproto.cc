#include "tensorproto.h"

#include "protobuf.h"
#include "utf8.h"

namespace tensorwire {
namespace {

// The wire type of a single, unpacked value of each field; kLen fields hold bytes or messages.
constexpr unsigned char kWire[kFields] = {
    9,        kVarint,  kLen,    kVarint,
    kLen,                               // -, dtype, tensor_shape, version_number, tensor_content
    kFixed32, kFixed64, kVarint, kLen,  // float_val, double_val, int_val, string_val
    kFixed32, kVarint,  kVarint, kFixed64,  // scomplex_val, int64_val, bool_val, dcomplex_val
    kVarint,  kLen,     kLen,               // half_val, resource_handle_val, variant_val
    kVarint,  kVarint,  kLen,               // uint32_val, uint64_val, float8_val
};
constexpr bool singular(unsigned field) { return field <= 4 || field == 18; }
constexpr bool packable(unsigned field) {
  return field >= 5 && field < kFields && kWire[field] != kLen;
}

bool scan_dim(Reader& r, const uint8_t* stop, bool strict, TensorScan& out) {
  uint64_t size = 0, length;
  bool seen_size = false, seen_name = false;
  const uint8_t* start = r.at;
  const uint8_t* outer = r.end;
  r.end = stop;
  while (!r.done()) {
    unsigned field, wire;
    const uint8_t* at = r.at;
    if (!r.tag(field, wire)) return false;
    if (field == 1 && wire == kVarint) {
      if (strict && seen_size) return r.fail(kRepeated, at);
      seen_size = true;
      if (!r.varint(size, strict)) return false;
    } else if (field == 2 && wire == kLen) {
      if (strict && seen_name) return r.fail(kRepeated, at);
      seen_name = true;
      if (!r.length(length)) return false;
      if (!is_utf8(r.at, length)) return r.fail(kBadUtf8, r.at);
      if (out.rank == 0) {
        out.name_offset = static_cast<size_t>(r.at - r.begin);
        out.name_size = length;
      }
      r.at += length;
    } else if (strict) {
      return r.fail(kUnknownField, at);
    } else if (!r.skip(field, wire)) {
      return false;
    }
  }
  r.end = outer;
  if (out.rank == kMaxRank) return r.fail(kTooManyDims, start);
  if (static_cast<int64_t>(size) < 0) return r.fail(kNegativeDim, start);
  out.dims[out.rank++] = static_cast<int64_t>(size);
  return true;
}

bool scan_shape(Reader& r, const uint8_t* stop, bool strict, TensorScan& out) {
  uint64_t value;
  bool seen_unknown = false;
  const uint8_t* outer = r.end;
  r.end = stop;
  while (!r.done()) {
    unsigned field, wire;
    const uint8_t* at = r.at;
    if (!r.tag(field, wire)) return false;
    if (field == 2 && wire == kLen) {
      if (!r.length(value) || !scan_dim(r, r.at + value, strict, out)) return false;
    } else if (field == 3 && wire == kVarint) {
      if (strict && seen_unknown) return r.fail(kRepeated, at);
      seen_unknown = true;
      if (!r.varint(value, strict)) return false;
      out.unknown_rank = value != 0;
    } else if (strict) {
      return r.fail(kUnknownField, at);
    } else if (!r.skip(field, wire)) {
      return false;
    }
  }
  r.end = outer;
  return true;
}

// How many values a packed run holds.
bool count_packed(Reader& r, unsigned field, uint64_t length, size_t& count) {
  const uint8_t* stop = r.at + length;
  const size_t width = kWire[field] == kFixed32 ? 4 : kWire[field] == kFixed64 ? 8 : 0;
  if (width) {
    if (length % width) return r.fail(kBadPacked, r.at);
    count += length / width;
  } else {
    size_t ends = 0;  // a varint ends at its one byte below 0x80
    for (const uint8_t* p = r.at; p < stop; p++) ends += *p < 0x80;
    if (length && stop[-1] >= 0x80) return r.fail(kTruncated, stop - 1);
    count += ends;
  }
  r.at = stop;
  return true;
}

}  // namespace

void scan_tensor(const uint8_t* data, size_t size, bool strict, bool stop_at_strings,
                 TensorScan& out) {
  Reader r(data, size);
  uint32_t seen = 0;
  const auto give_up = [&] {
    out.status = r.status;
    out.offset = r.offset;
  };
  while (!r.done()) {
    unsigned field, wire;
    const uint8_t* at = r.at;
    if (!r.tag(field, wire)) return give_up();
    const bool packed = field < kFields && packable(field) && wire == kLen;
    if (field >= kFields || (wire != kWire[field] && !packed)) {
      if (strict) {
        r.fail(kUnknownField, at);
        return give_up();
      }
      if (!r.skip(field, wire)) return give_up();
      continue;
    }
    if (strict && singular(field) && (seen >> field & 1)) {
      r.fail(kRepeated, at);
      return give_up();
    }
    seen |= 1u << field;
    uint64_t value = 0;
    if (packed) {
      if (!r.length(value) || !count_packed(r, field, value, out.counts[field])) return give_up();
      continue;
    }
    switch (field) {
      case 1:
        if (!r.varint(value, strict)) return give_up();
        // An enum is an int32 on the wire; a negative one takes ten bytes.
        out.dtype = strict ? static_cast<int64_t>(value) : static_cast<int32_t>(value);
        break;
      case 2:
        if (!r.length(value) || !scan_shape(r, r.at + value, strict, out)) return give_up();
        out.has_shape = true;
        break;
      case 4:
        if (!r.length(value)) return give_up();
        out.has_content = true;
        out.content_offset = static_cast<size_t>(r.at - r.begin);
        out.content_size = value;
        r.at += value;
        break;
      case 8:
        if (stop_at_strings) {
          out.counts[8] = 1;
          out.offset = static_cast<size_t>(at - r.begin);
          return;
        }
        if (!r.length(value)) return give_up();
        out.counts[8]++;
        r.at += value;
        break;
      case 18:
        if (!r.length(value)) return give_up();
        out.counts[18] = value;  // bytes, one a value; the last field wins
        r.at += value;
        break;
      default:
        if (!r.skip(field, wire)) return give_up();
        if (field > 3) out.counts[field]++;
    }
  }
  out.offset = size;
}

bool match_dense(const uint8_t* data, size_t size, DenseView& out) {
  Reader r(data, size);
  if (size < 4 || *r.at++ != 0x08) return false;
  uint64_t value, length;
  if (!r.varint(value) || value > 127) return false;
  out.dtype = static_cast<int64_t>(value);
  if (r.done() || *r.at++ != 0x12 || !r.length(length)) return false;
  const uint8_t* stop = r.at + length;
  out.rank = 0;
  out.bound = 1;
  while (r.at < stop) {
    if (*r.at++ != 0x12 || !r.length(length) || out.rank == kMaxRank) return false;
    const uint8_t* dim_stop = r.at + length;
    if (dim_stop > stop) return false;
    value = 0;
    if (length) {
      if (*r.at++ != 0x08 || !r.varint(value) || value > INT64_MAX) return false;
      if (value == 0) return false;  // written as an empty dim by everyone; not the usual form
    }
    if (r.at != dim_stop) return false;
    if (__builtin_mul_overflow(out.bound, value ? value : 1, &out.bound) || out.bound > INT64_MAX)
      return false;
    out.dims[out.rank++] = static_cast<int64_t>(value);
  }
  if (r.at != stop) return false;
  const bool has_content = !r.done();
  if (has_content && (*r.at++ != 0x22 || !r.length(length))) return false;
  out.content_offset = static_cast<size_t>(r.at - r.begin);
  out.content_size = has_content ? length : 0;
  // A header of the size that we would write has its numbers in their shortest form.
  return r.at + out.content_size == r.end &&
         dense_header_size(out.dtype, out.dims, out.rank,
                           has_content ? static_cast<int64_t>(length) : -1) == out.content_offset;
}

namespace {
size_t dim_size(int64_t dim) { return dim ? 1 + varint_size(static_cast<uint64_t>(dim)) : 0; }
size_t shape_size(const int64_t* dims, int rank) {
  size_t n = 0;
  for (int i = 0; i < rank; i++) n += 2 + dim_size(dims[i]);  // a dim's length is below 128
  return n;
}
}  // namespace

size_t dense_header_size(int64_t dtype, const int64_t* dims, int rank, int64_t content_size) {
  const size_t shape = shape_size(dims, rank);
  return 1 + varint_size(static_cast<uint64_t>(dtype)) + 1 + varint_size(shape) + shape +
         (content_size < 0 ? 0 : 1 + varint_size(static_cast<uint64_t>(content_size)));
}

uint8_t* write_dense_header(uint8_t* p, int64_t dtype, const int64_t* dims, int rank,
                            int64_t content_size) {
  *p++ = 0x08;
  p = write_varint(p, static_cast<uint64_t>(dtype));
  *p++ = 0x12;
  p = write_varint(p, shape_size(dims, rank));
  for (int i = 0; i < rank; i++) {
    *p++ = 0x12;
    *p++ = static_cast<uint8_t>(dim_size(dims[i]));
    if (!dims[i]) continue;
    *p++ = 0x08;
    p = write_varint(p, static_cast<uint64_t>(dims[i]));
  }
  if (content_size < 0) return p;
  *p++ = 0x22;
  return write_varint(p, static_cast<uint64_t>(content_size));
}

}  // namespace tensorwire
