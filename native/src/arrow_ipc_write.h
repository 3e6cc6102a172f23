// Arrow's IPC messages, written: the flatbuffers of a schema, of a batch, and of a file's footer.
// They are laid out from front to back, each table behind the one that it belongs to, so that a
// readable twin can do the same.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arrow_ipc.h"

namespace tensorwire {

struct IpcNumbers {
  int64_t first;
  int64_t second;
};

struct IpcBlock {
  int64_t offset;
  int32_t length;
  int64_t body;
};

// `fields` are in the order of the reader: each is followed by its children. They must add up.
std::string write_ipc_schema(const IpcSchema& schema);
std::string write_ipc_batch(int64_t length, const std::vector<IpcNumbers>& nodes,
                            const std::vector<IpcNumbers>& buffers, int codec, int64_t body);
std::string write_ipc_footer(const IpcSchema& schema, const std::vector<IpcBlock>& batches);
bool adds_up(const std::vector<IpcField>& fields);

}  // namespace tensorwire
