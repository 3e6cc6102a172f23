// CRC32C (Castagnoli), the checksum of TFRecord files, checkpoints and our own checksummed formats.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

// The checksum of `crc`'s bytes followed by these; start with 0.
uint32_t crc32c(uint32_t crc, const uint8_t* data, size_t size);

// The checksum of eight bytes: the length in front of every record.
uint32_t crc32c_eight(const uint8_t* data);

// The checksums of three messages at once: three short ones take little longer than one.
void crc32c_three(const uint8_t* const data[3], const size_t size[3], uint32_t out[3]);

// The table-driven fallback, named so that tests can compare it with the hardware path on any
// machine.
uint32_t crc32c_software(uint32_t crc, const uint8_t* data, size_t size);

}  // namespace tensorwire
