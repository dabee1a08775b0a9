/*
 * tls_failure.c
 *		Why a connection with TLS failed, in words.
 *
 * Called by tls.c, which asks OpenSSL for the errors and empties its queue of them.
 * Nothing here raises an error, takes one from that queue, or waits. What the server
 * or its certificate says is foreign text. Without OpenSSL there is nothing here.
 */
#include "postgres.h"

#include "src/redis/tls_failure.h"

#ifdef USE_OPENSSL

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "src/compat.h"
#include "src/foreign_text.h"

/* Alerts of a server that wants a certificate and got none. */
#define ALERT_HANDSHAKE_FAILURE		40
#define ALERT_BAD_CERTIFICATE		42
#define ALERT_UNKNOWN_CA			48
#define ALERT_CERTIFICATE_REQUIRED	116

static void note_certificate(char *error, const SSL *ssl, const char *host);
static void note_alert(char *error, int alert, const char *reason, bool shows_certificate);

/* Notes a reason in `error`, which has FOREIGN_TEXT_BYTES. */
void
tls_failure_note(char *error, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	foreign_text_format(error, FOREIGN_TEXT_BYTES, format, args);
	va_end(args);
}

/*
 * Notes an error of the protocol, on a connection with a server that is called by
 * this name or address; shows_certificate says whether we have one to show.
 */
void
tls_failure_note_code(char *error, unsigned long code, const SSL *ssl, const char *host, bool shows_certificate)
{
	int			reason = ERR_GET_REASON(code);

	if (ERR_GET_LIB(code) != ERR_LIB_SSL)
		tls_failure_note(error, "TLS failed: %s", tls_failure_reason(code));
	else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
		note_certificate(error, ssl, host);
	else if (reason > SSL_AD_REASON_OFFSET)
		note_alert(error, reason - SSL_AD_REASON_OFFSET, tls_failure_reason(code), shows_certificate);
	else if (!SSL_is_init_finished(ssl) &&
			 (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG))
		tls_failure_note(error, "the server does not speak TLS: %s", tls_failure_reason(code));
	else
		tls_failure_note(error, "TLS failed: %s", tls_failure_reason(code));
}

/* Returns what an error of OpenSSL says; 0 is one that it could not note. */
const char *
tls_failure_reason(unsigned long code)
{
	const char *reason;

	if (code == 0)
		return "out of memory";
	if (ERR_GET_LIB(code) == ERR_LIB_SYS)
		return foreign_text_error(ERR_GET_REASON(code));
	reason = ERR_reason_error_string(code);
	return reason ? reason : "unknown error of OpenSSL";
}

/* Notes why we do not accept the server's certificate. */
static void
note_certificate(char *error, const SSL *ssl, const char *host)
{
	long		result = SSL_get_verify_result(ssl);
	const char *reason = X509_verify_cert_error_string(result);

	if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
		tls_failure_note(error, "the certificate of the server is not for \"%.128s\": %s", host, reason);
	else
		tls_failure_note(error, "the certificate of the server is not accepted: %s", reason);
}

/* Notes why the server does not accept us. */
static void
note_alert(char *error, int alert, const char *reason, bool shows_certificate)
{
	bool		concerns_certificate = alert == ALERT_CERTIFICATE_REQUIRED || alert == ALERT_HANDSHAKE_FAILURE ||
		(alert >= ALERT_BAD_CERTIFICATE && alert <= ALERT_UNKNOWN_CA);

	if (concerns_certificate && !shows_certificate)
		tls_failure_note(error, "the server refuses the connection, probably because it requires a client certificate and outbox.redis_tls_cert_file is not set: %s", reason);
	else if (concerns_certificate)
		tls_failure_note(error, "the server does not accept the certificate of outbox.redis_tls_cert_file: %s", reason);
	else
		tls_failure_note(error, "the server refuses the connection: %s", reason);
}

#endif
