// The protobuf wire: varints, tags, and stepping from field to field. Every read is bounded by
// `end` and says where it failed.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

// What is wrong with a message, in the order of wire/status.py; 0 is "nothing".
enum Status : int {
  kOk = 0,
  kTruncated = 1,     // a field or number runs past the end
  kBadVarint = 2,     // a varint longer than 10 bytes or past 64 bits
  kBadTag = 3,        // field number 0, or a wire type that protobuf does not have
  kUnknownField = 4,  // strict: a field that the message does not define, or one in a wire type
                      // that is not its own
  kRepeated = 5,      // strict: a singular field twice (two messages joined)
  kNegativeDim = 6,
  kTooManyDims = 7,
  kBadUtf8 = 8,      // a dimension's name
  kBadPacked = 9,    // a packed run of fixed numbers that is not a whole number of them
  kOutOfRange = 10,  // strict: a typed value that the dtype cannot hold
  kTooFew = 11,
  kTooMany = 12,
  kBadBool = 13,      // a bool that is neither 0 nor 1
  kMixedFields = 14,  // where only string_val may stand, something else does
  kBadGroup = 15,     // groups nest too deep or do not close
  kNoSpace = 16,  // what was measured no longer fits (the input changed under us), or the caller is
                  // asked for more room
  kWrongKind = 17,     // a feature holds another kind of list than the column
  kWrongLength = 18,   // a feature holds more or fewer values than the column
  kBadLengthCrc = 19,  // a record's length does not match its checksum
  kBadDataCrc = 20,    // a record's data does not match its checksum
  kTooLong = 21,       // a record is longer than allowed
  kBadCopy = 30,       // Snappy: a copy from before the start, or of offset 0
  kOverrun = 31,       // Snappy: more data than the length at the start says
  kOverLimit = 32,     // Snappy: the data is longer than allowed
  kBadOffset = 40,     // Arrow: an offset that points outside of the message
  kWrongMessage = 41,  // Arrow: not one of its messages, or not one that is read
  kNested = 42,        // Arrow: types inside each other too deep
  kShared = 43,        // Arrow: a tree or a text that is larger than the message that it is in
  kBadLayout =
      44,  // Arrow: a negative length, or buffers that do not follow each other inside the body
  kBadJson = 50,      // JSON: something else should stand here
  kBadNumber = 51,    // JSON: no number, or not one by its grammar
  kNotInteger = 52,   // JSON: a point or an exponent in a number of an integer type
  kNotBool = 53,      // JSON: neither true nor false
  kRagged = 54,       // JSON: lists of one depth are not equally long
  kWrongShape = 55,   // JSON: lists that are not those of the given shape
  kMixedDepth = 56,   // JSON: lists and numbers side by side
  kTooDeep = 57,      // JSON: nested too deep
  kBadRestarts = 60,  // table: restarts that are not where an entry with a whole key begins
  kBadPrefix = 61,    // table: a key that shares more than the one before it has
  kKeyOrder = 62,     // table: keys that do not ascend
  kTooLarge = 63,     // checkpoint: a shape that no memory holds
  kNoDtype = 64,      // checkpoint: a dtype that there is not
  kNoShard = 65,      // checkpoint: a data file that there is not
  kWrongSize = 66,    // checkpoint: a tensor whose bytes are not those of its shape
};

enum WireType : unsigned {
  kVarint = 0,
  kFixed64 = 1,
  kLen = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5
};

struct Reader {
  const uint8_t* begin;
  const uint8_t* at;
  const uint8_t* end;
  int status = kOk;
  size_t offset = 0;  // where it failed

  Reader(const uint8_t* data, size_t size, size_t start = 0)
      : begin(data), at(data + start), end(data + size) {}
  bool done() const { return at == end; }
  bool fail(int why, const uint8_t* where) {
    status = why;
    offset = static_cast<size_t>(where - begin);
    return false;
  }

  // Protobuf takes the low 64 bits of a 10-byte varint; strict readers refuse what does not fit.
  bool varint(uint64_t& out, bool strict = true) {
    const uint8_t* start = at;
    if (at < end && *at < 0x80) {
      out = *at++;
      return true;
    }
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (at == end) return fail(kTruncated, start);
      const uint8_t byte = *at++;
      if (shift == 63 && strict && byte > 1) return fail(kBadVarint, start);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        out = value;
        return true;
      }
    }
    return fail(kBadVarint, start);
  }

  bool tag(unsigned& field, unsigned& wire) {
    const uint8_t* start = at;
    uint64_t value;
    if (!varint(value)) return false;
    field = static_cast<unsigned>(value >> 3);
    wire = value & 7;
    // Numbers may be padded, but a tag is of 32 bits, and protobuf looks at no more than five bytes
    // for it.
    if (value > 0xffffffffu || at - start > 5 || field == 0 || wire > kFixed32)
      return fail(kBadTag, start);
    return true;
  }

  bool length(uint64_t& size) {
    const uint8_t* start = at;
    if (!varint(size)) return false;
    if (at - start > 5) return fail(kBadVarint, start);
    if (size > static_cast<uint64_t>(end - at)) return fail(kTruncated, start);
    return true;
  }

  bool fixed(size_t size) {
    if (static_cast<size_t>(end - at) < size) return fail(kTruncated, at);
    at += size;
    return true;
  }

  // Steps over a field whose tag has been read.
  bool skip(unsigned field, unsigned wire, int depth = 0) {
    uint64_t value;
    switch (wire) {
      case kVarint:
        return varint(value, false);
      case kFixed64:
        return fixed(8);
      case kFixed32:
        return fixed(4);
      case kLen:
        if (!length(value)) return false;
        at += value;
        return true;
      case kStartGroup: {
        const uint8_t* start = at;
        if (depth >= 100) return fail(kBadGroup, start);
        for (;;) {
          if (done()) return fail(kTruncated, start);
          unsigned inner, inner_wire;
          if (!tag(inner, inner_wire)) return false;
          if (inner_wire == kEndGroup) return inner == field ? true : fail(kBadGroup, start);
          if (!skip(inner, inner_wire, depth + 1)) return false;
        }
      }
      default:
        return fail(kBadGroup, at);
    }
  }
};

inline size_t varint_size(uint64_t value) {
  size_t n = 1;
  for (; value >= 0x80; value >>= 7) n++;
  return n;
}

inline uint8_t* write_varint(uint8_t* p, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *p++ = static_cast<uint8_t>(value | 0x80);
  *p++ = static_cast<uint8_t>(value);
  return p;
}

}  // namespace tensorwire
