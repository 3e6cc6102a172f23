// Writes messages for tensorwire, one of each kind that needs no words of its own.   node write.js tensor_data.proto FOLDER
"use strict";
const fs = require("fs");
const path = require("path");
const protobuf = require("protobufjs");

const TensorData = protobuf.loadSync(process.argv[2]).lookupType("tensorwire.TensorData");
const magic = "tensorwire/1";

const dense = (dtype, array, shape) => ({ kind: "dense", dtype, shape, data: new Uint8Array(array.buffer) });
const vector = (key, dtype, array) => ({ ...dense(dtype, array, [array.length]), key });
const words = (dtype, items) => ({ kind: "strings", dtype, shape: [items.length], strings: items.map((item) => Buffer.from(item)) });

const matrix = dense("float32", Float32Array.of(1.5, -0, NaN, Infinity, 1e-45, 6), [2, 3]);
const large = dense("int64", BigInt64Array.of(-(2n ** 63n), 2n ** 53n + 1n, 2n ** 63n - 1n), [3]);
const sparse = {
  kind: "sparse",
  shape: [3, 4],
  parts: [{ ...dense("int64", BigInt64Array.of(0n, 1n, 2n, 3n), [2, 2]), key: "indices" }, vector("values", "float64", Float64Array.of(2.5, -1))],
};
const ragged = {
  kind: "ragged",
  parts: [
    vector("row_splits/0", "int32", Int32Array.of(0, 2, 2)),
    vector("row_splits/1", "int32", Int32Array.of(0, 1, 3)),
    vector("values", "uint8", Uint8Array.of(7, 8, 9)),
  ],
};
const messages = {
  dense: { ...matrix, name: "logits:0", device: "cuda:0", metadata: { model: "nmt-v2" } },
  large,
  scalar: dense("bool", Uint8Array.of(1), []),
  empty: dense("float32", new Float32Array(0), [0, 4]),
  text: words("text", ["wire", "", "é中🙂"]),
  bytes: { ...words("bytes", [[0, 255], [], [0x80]]), shape: [3, 1] },
  sparse,
  ragged,
  dict: { kind: "dict", parts: [{ ...sparse, key: "s" }, { ...large, key: "" }, { kind: "value", spec: '{"list":[1,null]}', key: "n" }] },
  list: { kind: "list", parts: [matrix, ragged, { kind: "tuple", parts: [words("text", ["x"])] }] },
  bundle: { kind: "bundle", parts: [{ ...matrix, key: "x", device: "cpu", metadata: { unit: "m" } }], metadata: { step: "7" } },
  keyed: { ...large, key: "ids", name: "ids:0" },
};
for (const [name, message] of Object.entries(messages)) {
  const wrong = TensorData.verify({ magic, ...message });
  if (wrong) throw new Error(wrong);
  fs.writeFileSync(path.join(process.argv[3], name), TensorData.encode(TensorData.create({ magic, ...message })).finish());
}
