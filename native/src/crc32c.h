// CRC32C (Castagnoli), the checksum of TFRecord files, checkpoints and our own checksummed formats.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

// The checksum of `crc`'s bytes followed by these; start with 0.
uint32_t crc32c(uint32_t crc, const uint8_t* data, size_t size);

// The table-driven fallback, named so that tests can compare it with the hardware path on any machine.
uint32_t crc32c_software(uint32_t crc, const uint8_t* data, size_t size);

}  // namespace tensorwire
