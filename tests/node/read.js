// Prints as JSON what the messages of tensorwire hold.   node read.js tensor_data.proto FILE...
"use strict";
const fs = require("fs");
const protobuf = require("protobufjs");

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, bool: Uint8Array,
};

function numbers(message) {
  const bytes = new Uint8Array(message.data); // a copy, aligned for any type
  return Array.from(new ARRAYS[message.dtype](bytes.buffer), String);
}

function shown(message) {
  const seen = { kind: message.kind, dtype: message.dtype, shape: message.shape.map(String) };
  for (const field of ["magic", "key", "name", "device", "spec"]) {
    if (Object.hasOwn(message, field)) seen[field] = message[field];
  }
  if (message.kind === "dense") seen.values = numbers(message);
  if (message.kind === "strings") seen.values = message.strings.map((item) => Buffer.from(item).toString(message.dtype === "text" ? "utf8" : "hex"));
  if (message.parts.length) seen.parts = message.parts.map(shown);
  if (Object.keys(message.metadata).length) seen.metadata = message.metadata;
  return seen;
}

const TensorData = protobuf.loadSync(process.argv[2]).lookupType("tensorwire.TensorData");
const seen = process.argv.slice(3).map((path) => {
  const bytes = fs.readFileSync(path);
  const message = TensorData.decode(bytes);
  return { ...shown(message), same: Buffer.from(TensorData.encode(message).finish()).equals(bytes) };
});
process.stdout.write(JSON.stringify(seen));
