/*
 * sha256.h
 *		SHA-256 of short strings.
 */
#ifndef OUTBOX_SHA256_H
#define OUTBOX_SHA256_H

#define SHA256_BYTES	32

extern void sha256_begin(void);
extern void sha256_add(const void *bytes, size_t length);
extern void sha256_end(uint8 *digest);

#endif							/* OUTBOX_SHA256_H */
