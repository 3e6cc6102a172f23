// tf.train.Example and SequenceExample messages into columns. `_native.pyi` says what the outputs
// are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tensorwire {

struct Column {
  std::string name;
  int kind;             // FeatureKind
  int64_t length;       // values that every instance must have, or -1
  bool list;            // of a SequenceExample's feature lists
  bool places = false;  // kBytesList of a fixed length only: not the strings, but (start, size) of
                        // each in the input
};

// Where a column goes; every size is that of the buffer, in elements. What a column has no use for
// is null.
struct Output {
  uint8_t* values = nullptr;
  size_t values_room = 0;
  int64_t* offsets = nullptr;
  size_t offsets_room = 0;
  int64_t* splits = nullptr;
  size_t splits_room = 0;
  int64_t* steps = nullptr;
  size_t steps_room = 0;
  uint8_t* present = nullptr;
};

struct Decoded {
  int status = 0;
  size_t offset = 0;
  size_t done = 0;    // messages decoded
  size_t column = 0;  // the one at fault, or that needs more room
  uint64_t found = 0;
  // Whether a decoded message has features that no column takes, or fields that no Example has.
  // Always false with another `compat` than kProtobuf.
  bool strange = false;
};

// Which rules a message is read by: protobuf's, or those of TensorFlow's own parser. In that parser
// an unset Feature behind another one of its name is passed over in dense features, and makes
// others missing.
enum Compat : int { kProtobuf = 0, kUnsetIgnored = 1, kUnsetCounts = 2 };

class ExampleDecoder {
 public:
  // With another `compat` than kProtobuf no column may be of places.
  ExampleDecoder(std::vector<Column> columns, bool sequence, Compat compat = kProtobuf);
  const std::vector<Column>& columns() const { return columns_; }
  bool sequence() const { return sequence_; }
  Compat compat() const { return compat_; }

  // `rows` bounds the rows of every output. Nothing is kept between calls, so threads may share a
  // decoder.
  Decoded decode(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* sizes,
                 size_t count, size_t row, size_t rows, const Output* outputs, bool checked) const;

  // The column of a name, or -1.
  int find(std::string_view name, bool list) const;

 private:
  std::vector<Column> columns_;
  std::vector<int> sorted_;  // columns by (list, name)
  bool sequence_;
  Compat compat_;
};

}  // namespace tensorwire
