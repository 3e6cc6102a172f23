// The messages of Arrow's IPC format, which are flatbuffers: schemas, batches, and the footer of a
// file. Nothing is believed before it is checked: offsets stay inside the message, types nest
// kIpcDepth deep at most, a message says no more than it has room for (its parts may be used again,
// which could make a tree without end of a few bytes), and the buffers of a batch follow each other
// inside its body.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tensorwire {

constexpr int kIpcDepth = 64;

struct IpcPair {
  std::string_view key;
  std::string_view value;
};

struct IpcField {
  std::string_view name;
  int kind = 0;   // the number of the type
  int width = 0;  // bits, precision, length or mode, as the type has it
  int is_signed = 0;
  size_t children = 0;  // they follow, each with its own behind it
  bool coded = false;   // by a dictionary
  int64_t id = 0;
  int index_bits = 32;
  int index_signed = 1;
  std::vector<IpcPair> pairs;
};

struct IpcSchema {
  int endianness = 0;
  std::vector<IpcField> fields;
  std::vector<IpcPair> pairs;
};

// Structs of numbers as they lie in the message, at any address.
struct IpcStructs {
  const uint8_t* at = nullptr;
  size_t count = 0;
};

struct IpcBatch {
  int64_t length = 0;
  IpcStructs nodes;    // int64 length, nulls
  IpcStructs buffers;  // int64 offset, length
  int codec = -1;
  IpcStructs counts;  // int64
};

struct IpcMessage {
  int status = 0;
  size_t offset = 0;
  int version = 0;
  int kind = 0;  // 1 schema, 2 dictionary, 3 batch
  int64_t body = 0;
  IpcSchema schema;
  int64_t id = 0;  // of a dictionary
  int delta = 0;
  IpcBatch batch;
};

struct IpcFooter {
  int status = 0;
  size_t offset = 0;
  int version = 0;
  IpcSchema schema;
  IpcStructs dictionaries;  // int64 offset, int32 length of the message, 4 bytes of nothing, int64
                            // length of the body
  IpcStructs batches;
};

void read_ipc_message(const uint8_t* data, size_t size, IpcMessage& out);
void read_ipc_footer(const uint8_t* data, size_t size, IpcFooter& out);

}  // namespace tensorwire
