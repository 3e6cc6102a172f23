// The messages of Arrow's IPC format.
#include "arrow_ipc_write.h"

#include <cstring>

#include "protobuf.h"
#include "python.h"

namespace tensorwire {
namespace {

nb::object text_of(std::string_view text) {
  PyObject* found =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
  if (!found) throw nb::python_error();
  return nb::steal(found);
}

nb::list pairs_of(const std::vector<IpcPair>& pairs) {
  nb::list out;
  for (const IpcPair& pair : pairs)
    out.append(nb::make_tuple(text_of(pair.key), text_of(pair.value)));
  return out;
}

nb::tuple schema_of(const IpcSchema& schema) {
  nb::list fields;
  for (const IpcField& f : schema.fields) {
    nb::object coded =
        f.coded ? nb::object(nb::make_tuple(f.id, f.index_bits, f.index_signed)) : nb::none();
    fields.append(nb::make_tuple(text_of(f.name), f.kind, f.width, f.is_signed, f.children, coded,
                                 pairs_of(f.pairs)));
  }
  return nb::make_tuple(schema.endianness, fields, pairs_of(schema.pairs));
}

nb::object table_of(size_t rows, npy_intp columns, int64_t*& data) {
  npy_intp dims[2] = {static_cast<npy_intp>(rows), columns};
  PyObject* array = PyArray_SimpleNew(2, dims, NPY_INT64);
  if (!array) throw nb::python_error();
  data = static_cast<int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
  return nb::steal(array);
}

nb::object numbers_of(const IpcStructs& structs) {
  int64_t* data;
  nb::object out = table_of(structs.count, 2, data);
  if (structs.count) std::memcpy(data, structs.at, 16 * structs.count);
  return out;
}

nb::object blocks_of(const IpcStructs& structs) {
  int64_t* data;
  nb::object out = table_of(structs.count, 3, data);
  for (size_t i = 0; i < structs.count; i++, data += 3) {
    int32_t length;
    std::memcpy(data, structs.at + 24 * i, 8);
    std::memcpy(&length, structs.at + 24 * i + 8, 4);
    std::memcpy(data + 2, structs.at + 24 * i + 16, 8);
    data[1] = length;
  }
  return out;
}

nb::tuple batch_of(const IpcBatch& batch) {
  nb::list counts;
  for (size_t i = 0; i < batch.counts.count; i++) {
    int64_t count;
    std::memcpy(&count, batch.counts.at + 8 * i, 8);
    counts.append(count);
  }
  return nb::make_tuple(batch.length, numbers_of(batch.nodes), numbers_of(batch.buffers),
                        batch.codec, counts);
}

// -> (status, offset, version, kind, bytes of the body, schema | (id, delta, batch) | batch)
nb::tuple ipc_message(nb::handle object) {
  Buffer in(object);
  IpcMessage found;
  read_ipc_message(in.data(), in.size(), found);
  if (found.status != kOk) return nb::make_tuple(found.status, found.offset, 0, 0, 0, nb::none());
  nb::tuple inside = found.kind == 1 ? schema_of(found.schema)
                     : found.kind == 3
                         ? batch_of(found.batch)
                         : nb::make_tuple(found.id, found.delta, batch_of(found.batch));
  return nb::make_tuple(0, 0, found.version, found.kind, found.body, inside);
}

// -> (status, offset, version, schema, blocks of dictionaries, blocks of batches)
nb::tuple ipc_footer(nb::handle object) {
  Buffer in(object);
  IpcFooter found;
  read_ipc_footer(in.data(), in.size(), found);
  if (found.status != kOk)
    return nb::make_tuple(found.status, found.offset, 0, nb::none(), nb::none(), nb::none());
  return nb::make_tuple(0, 0, found.version, schema_of(found.schema), blocks_of(found.dictionaries),
                        blocks_of(found.batches));
}

std::string_view view_of(nb::handle text) {
  Py_ssize_t size;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);  // lives as long as the text
  if (!data) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

std::vector<IpcPair> read_pairs(nb::handle list) {
  std::vector<IpcPair> out;
  for (nb::handle pair : list) out.push_back({view_of(pair[0]), view_of(pair[1])});
  return out;
}

IpcSchema read_schema(nb::handle fields, nb::handle pairs) {
  IpcSchema out;
  for (nb::handle row : fields) {
    IpcField field;
    field.name = view_of(row[0]);
    field.kind = nb::cast<int>(row[1]);
    field.width = nb::cast<int>(row[2]);
    field.is_signed = nb::cast<int>(row[3]);
    field.children = nb::cast<size_t>(row[4]);
    field.pairs = read_pairs(row[6]);
    out.fields.push_back(std::move(field));
  }
  if (!adds_up(out.fields)) throw nb::value_error("the fields do not add up");
  out.pairs = read_pairs(pairs);
  return out;
}

std::vector<IpcNumbers> read_numbers(nb::handle list) {
  std::vector<IpcNumbers> out;
  for (nb::handle pair : list)
    out.push_back({nb::cast<int64_t>(pair[0]), nb::cast<int64_t>(pair[1])});
  return out;
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

nb::bytes ipc_schema(nb::list fields, nb::list pairs) {
  return bytes_of(write_ipc_schema(read_schema(fields, pairs)));
}

nb::bytes ipc_batch(int64_t length, nb::list nodes, nb::list buffers, int codec, int64_t body) {
  return bytes_of(write_ipc_batch(length, read_numbers(nodes), read_numbers(buffers), codec, body));
}

nb::bytes ipc_end(nb::list fields, nb::list pairs, nb::list blocks) {
  std::vector<IpcBlock> batches;
  for (nb::handle block : blocks)
    batches.push_back(
        {nb::cast<int64_t>(block[0]), nb::cast<int32_t>(block[1]), nb::cast<int64_t>(block[2])});
  return bytes_of(write_ipc_footer(read_schema(fields, pairs), batches));
}

}  // namespace

void bind_arrow_ipc(nb::module_& m) {
  m.def("ipc_message", &ipc_message);
  m.def("ipc_footer", &ipc_footer);
  m.def("ipc_schema", &ipc_schema);
  m.def("ipc_batch", &ipc_batch);
  m.def("ipc_end", &ipc_end);
}

}  // namespace tensorwire
