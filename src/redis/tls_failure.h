/*
 * tls_failure.h
 *		Why a connection with TLS failed, in words.
 */
#ifndef OUTBOX_TLS_FAILURE_H
#define OUTBOX_TLS_FAILURE_H

#ifdef USE_OPENSSL

#include <openssl/ssl.h>

extern void tls_failure_note(char *error, const char *format,...) pg_attribute_printf(2, 3);
extern void tls_failure_note_code(char *error, unsigned long code, const SSL *ssl, const char *host,
								  bool shows_certificate);
extern const char *tls_failure_reason(unsigned long code);

#endif

#endif							/* OUTBOX_TLS_FAILURE_H */
