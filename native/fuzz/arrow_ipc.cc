// read_ipc_message and read_ipc_footer: whatever they give out lies inside the message, no more
// than it has room for, and sound; and what is written of it reads the same again. The first byte
// says which of the two.
#include "arrow_ipc.h"

#include <string>

#include "arrow_ipc_write.h"
#include "fuzz.h"

using namespace tensorwire;

namespace {

struct Input {
  const uint8_t* data;
  size_t size;

  void check(std::string_view text) const {
    if (!text.empty())
      CHECK(reinterpret_cast<const uint8_t*>(text.data()) >= data &&
            reinterpret_cast<const uint8_t*>(text.data()) + text.size() <= data + size);
  }
  void check(const IpcStructs& structs, size_t item) const {
    if (structs.count)
      CHECK(structs.at >= data && structs.count <= size / item &&
            structs.at + structs.count * item <= data + size);
  }
};

size_t check_pairs(const Input& in, const std::vector<IpcPair>& pairs) {
  size_t text = 0;
  for (const IpcPair& pair : pairs) {
    in.check(pair.key);
    in.check(pair.value);
    text += pair.key.size() + pair.value.size();
  }
  return text;
}

void check_schema(const Input& in, const IpcSchema& schema) {
  size_t tables = schema.fields.size() + schema.pairs.size(), text = check_pairs(in, schema.pairs);
  for (const IpcField& field : schema.fields) {
    in.check(field.name);
    text += field.name.size() + check_pairs(in, field.pairs);
    tables += field.pairs.size();
  }
  CHECK(tables <= in.size / 8 && text <= 4 * in.size);
  CHECK(adds_up(schema.fields));
}

bool same(const std::vector<IpcPair>& a, const std::vector<IpcPair>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (a[i].key != b[i].key || a[i].value != b[i].value) return false;
  return true;
}

// What the writer has: types by number with the few words that we need of them, and no
// dictionaries.
void check_same(const IpcSchema& a, const IpcSchema& b) {
  CHECK(a.fields.size() == b.fields.size() && same(a.pairs, b.pairs));
  for (size_t i = 0; i < a.fields.size(); i++) {
    const IpcField &x = a.fields[i], &y = b.fields[i];
    CHECK(x.name == y.name && x.kind == y.kind && x.children == y.children &&
          same(x.pairs, y.pairs));
    const bool told = x.kind == 2 || x.kind == 3 || x.kind == 15 || x.kind == 16;
    CHECK(!told || (x.width == y.width && (x.kind != 2 || x.is_signed == y.is_signed)));
  }
}

int64_t number_at(const IpcStructs& structs, size_t i) {
  int64_t value;
  std::memcpy(&value, structs.at + 8 * i, 8);
  return value;
}

std::vector<IpcNumbers> numbers(const IpcStructs& structs) {
  std::vector<IpcNumbers> out;
  for (size_t i = 0; i < structs.count; i++)
    out.push_back({number_at(structs, 2 * i), number_at(structs, 2 * i + 1)});
  return out;
}

void check_batch(const Input& in, const IpcBatch& batch, int64_t body) {
  in.check(batch.nodes, 16);
  in.check(batch.buffers, 16);
  in.check(batch.counts, 8);
  CHECK(batch.length >= 0 && body >= 0 && batch.codec >= -1 && batch.codec <= 1);
  int64_t end = 0;
  for (const IpcNumbers& buffer : numbers(batch.buffers)) {
    CHECK(buffer.second >= 0 && buffer.first >= end && buffer.second <= body - buffer.first);
    end = buffer.first + buffer.second;
  }
  for (const IpcNumbers& node : numbers(batch.nodes))
    CHECK(node.second >= 0 && node.second <= node.first);
  const std::string text = write_ipc_batch(batch.length, numbers(batch.nodes),
                                           numbers(batch.buffers), batch.codec, body);
  const fuzz::Exact<uint8_t> again(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  IpcMessage found;
  read_ipc_message(again.data(), again.size(), found);
  CHECK(found.status == 0 && found.kind == 3 && found.body == body &&
        found.batch.length == batch.length && found.batch.codec == batch.codec);
  CHECK(found.batch.nodes.count == batch.nodes.count &&
        found.batch.buffers.count == batch.buffers.count);
  if (batch.nodes.count)
    CHECK(!std::memcmp(found.batch.nodes.at, batch.nodes.at, 16 * batch.nodes.count));
  if (batch.buffers.count)
    CHECK(!std::memcmp(found.batch.buffers.at, batch.buffers.at, 16 * batch.buffers.count));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!size) return 0;
  const Input in{data + 1, size - 1};
  if (data[0] & 1) {
    IpcFooter footer;
    read_ipc_footer(in.data, in.size, footer);
    CHECK(footer.offset <= in.size);
    if (footer.status) return 0;
    check_schema(in, footer.schema);
    in.check(footer.dictionaries, 24);
    in.check(footer.batches, 24);
    const std::string text = write_ipc_footer(footer.schema, {{8, 64, 128}});
    const fuzz::Exact<uint8_t> again(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    IpcFooter found;
    read_ipc_footer(again.data(), again.size(), found);
    CHECK(found.status == 0 && found.batches.count == 1 && number_at(found.batches, 0) == 8 &&
          number_at(found.batches, 2) == 128);
    check_same(footer.schema, found.schema);
    return 0;
  }
  IpcMessage message;
  read_ipc_message(in.data, in.size, message);
  CHECK(message.offset <= in.size);
  if (message.status) return 0;
  CHECK(message.kind >= 1 && message.kind <= 3);
  if (message.kind != 1) {
    check_batch(in, message.batch, message.body);
    return 0;
  }
  check_schema(in, message.schema);
  const std::string text = write_ipc_schema(message.schema);
  const fuzz::Exact<uint8_t> again(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  IpcMessage found;
  read_ipc_message(again.data(), again.size(), found);
  CHECK(found.status == 0 && found.kind == 1);
  check_same(message.schema, found.schema);
  return 0;
}
