/*
 * crc16.c
 *		CRC-16/XMODEM: the checksum by which Redis Cluster distributes keys.
 *
 * Called by hash_slot.c. The polynomial is 0x1021, the first value 0, no bits are
 * reflected: "123456789" has 0x31C3. Clients in other languages compute the same,
 * so it must never change. It allocates nothing and raises no error.
 */
#include "postgres.h"

#include "src/crc16.h"

/* What each value of the highest four bits adds. */
static const uint16 remainders[16] = {
	0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
	0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef
};

/* Returns the checksum of some bytes. */
uint16
crc16(const char *bytes, size_t size)
{
	uint16		crc = 0;

	for (size_t i = 0; i < size; i++)
	{
		crc ^= (uint16) ((unsigned char) bytes[i] << 8);
		crc = (uint16) (crc << 4) ^ remainders[crc >> 12];
		crc = (uint16) (crc << 4) ^ remainders[crc >> 12];
	}
	return crc;
}
