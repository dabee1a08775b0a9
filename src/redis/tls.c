/*
 * tls.c
 *		TLS on a connected socket, by OpenSSL.
 *
 * Called by channel.c, which owns the socket. It never waits: where OpenSSL needs
 * the socket to be readable or writable first, it says for which of them to wait.
 * Nothing here is called by OpenSSL that could raise an error, so no longjmp
 * passes its frames. Its queue of errors, which PostgreSQL and libpq use, too, is
 * cleared before it is called and after it has failed.
 *
 * The server must show a certificate of a trusted authority, for the name by which
 * it was called; there is no setting that turns this off, and nothing falls back to
 * an unencrypted connection. Files are read for each connection, like that of the
 * password, so that new certificates need no reload.
 *
 * OpenSSL writes with write(), which would raise SIGPIPE; all processes of
 * PostgreSQL ignore that.
 */
#include "postgres.h"

#include "src/redis/tls.h"

#ifdef USE_OPENSSL

#include <arpa/inet.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "storage/latch.h"
#include "utils/memutils.h"

#include "src/compat.h"
#include "src/foreign_text.h"
#include "src/redis/tls_failure.h"
#include "src/settings.h"

struct Tls
{
	SSL		   *ssl;
	const char *host;			/* that the certificate must be for; in this
								 * memory */
	bool		shows_certificate;	/* of ours */
	bool		is_broken;		/* nothing can be sent any more, not even that
								 * we are leaving */
	int			read_event;		/* to wait for before tls_read() is called */
	int			write_event;	/* ... or tls_write() */
	char		error[FOREIGN_TEXT_BYTES];
};

static Tls *make_tls(const char *host);
static SSL_CTX *make_context(Tls *tls);
static int	refuse_passphrase(char *passphrase, int size, int is_writing, void *arg);
static bool load_authorities(Tls *tls, SSL_CTX *context);
static bool load_certificate(Tls *tls, SSL_CTX *context);
static bool check_is_file(Tls *tls, const char *setting, const char *file);
static bool check_key_file(Tls *tls, const char *file);
static bool expect_name(Tls *tls);
static int	note_result(Tls *tls, int result, int *event);
static void look_for_alert(Tls *tls);
static void fail_with_file(Tls *tls, const char *setting);
static void fail_with_code(Tls *tls, unsigned long code);

/* Returns why there is no TLS, as a sentence; NULL if there is. */
const char *
tls_why_none(void)
{
	return NULL;
}

/*
 * Prepares TLS for a socket, with a server that is called by this name or
 * address. Returns NULL, with the reason, if the settings do not permit that.
 */
Tls *
tls_open(int socket, const char *host, char *error, size_t size)
{
	Tls		   *tls = make_tls(host);
	SSL_CTX    *context;

	ERR_clear_error();
	context = make_context(tls);
	if (context)
	{
		/* It keeps the context as long as it needs it. */
		tls->ssl = SSL_new(context);
		SSL_CTX_free(context);
		if (tls->ssl && expect_name(tls) && SSL_set_fd(tls->ssl, socket) == 1)
			return tls;
		tls_failure_note(tls->error, "could not prepare TLS: %s", tls_failure_reason(ERR_get_error()));
	}
	strlcpy(error, tls->error, size);
	tls->is_broken = true;
	tls_close(tls);
	return NULL;
}

/* Tells the server that we are leaving, if it takes that without waiting, and frees everything but the socket. */
void
tls_close(Tls *tls)
{
	ERR_clear_error();
	if (!tls->is_broken && SSL_is_init_finished(tls->ssl))
		(void) SSL_shutdown(tls->ssl);
	SSL_free(tls->ssl);
	ERR_clear_error();
	pfree(tls);
}

/*
 * Takes the next step of the handshake. Returns 1 when it is done, 0 if
 * tls_read_event() must be waited for, or -1 if it has failed.
 */
int
tls_handshake(Tls *tls)
{
	ERR_clear_error();
	errno = 0;
	return note_result(tls, SSL_connect(tls->ssl), &tls->read_event);
}

/*
 * Reads what is there. Returns the number of bytes, 0 if tls_read_event() must be
 * waited for, or -1 if the connection has failed. What has arrived may let a
 * write go on.
 */
int
tls_read(Tls *tls, char *bytes, size_t size)
{
	tls->write_event = WL_SOCKET_WRITEABLE;
	ERR_clear_error();
	errno = 0;
	return note_result(tls, SSL_read(tls->ssl, bytes, Min(size, INT_MAX)), &tls->read_event);
}

/*
 * Writes what the socket takes. Returns the number of bytes, 0 if
 * tls_write_event() must be waited for, or -1 if the connection has failed. After
 * a 0 the next call must have the same bytes, perhaps with more behind them.
 */
int
tls_write(Tls *tls, const char *bytes, size_t size)
{
	int			written;

	tls->read_event = WL_SOCKET_READABLE;
	ERR_clear_error();
	errno = 0;
	written = note_result(tls, SSL_write(tls->ssl, bytes, Min(size, INT_MAX)), &tls->write_event);
	if (written < 0)
		look_for_alert(tls);
	return written;
}

/* Check whether bytes have been taken from the socket that tls_read() has not returned yet. */
bool
tls_has_unread(const Tls *tls)
{
	return SSL_pending(tls->ssl) > 0;
}

/* Returns the event of the socket after which reading, or the handshake, can go on. */
int
tls_read_event(const Tls *tls)
{
	return tls->read_event;
}

/* Returns the event of the socket after which writing can go on. */
int
tls_write_event(const Tls *tls)
{
	return tls->write_event;
}

/* Returns why the connection failed. */
const char *
tls_error(const Tls *tls)
{
	return tls->error;
}

/* Makes what is known before OpenSSL is asked; the name may be another one by a setting. */
static Tls *
make_tls(const char *host)
{
	const char *name = outbox_redis_tls_server_name[0] != '\0' ? outbox_redis_tls_server_name : host;
	Tls		   *tls = MemoryContextAllocZero(TopMemoryContext, sizeof(Tls) + strlen(name) + 1);

	tls->host = strcpy((char *) (tls + 1), name);
	tls->read_event = WL_SOCKET_READABLE;
	tls->write_event = WL_SOCKET_WRITEABLE;
	return tls;
}

/* Makes a context of OpenSSL by the settings. Returns NULL, with the reason, if that fails. */
static SSL_CTX *
make_context(Tls *tls)
{
	SSL_CTX    *context = SSL_CTX_new(TLS_client_method());

	if (context == NULL)
	{
		tls_failure_note(tls->error, "could not prepare TLS: %s", tls_failure_reason(ERR_get_error()));
		return NULL;
	}
	SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);

	/*
	 * SSL_read() would not return as long as the server sends what is no
	 * reply, such as tickets.
	 */
	SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_default_passwd_cb(context, refuse_passphrase);
	if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
		load_authorities(tls, context) && load_certificate(tls, context))
		return context;
	if (tls->error[0] == '\0')
		tls_failure_note(tls->error, "could not prepare TLS: %s", tls_failure_reason(ERR_get_error()));
	SSL_CTX_free(context);
	return NULL;
}

/* A pem_password_cb: OpenSSL would ask at the terminal, and wait. */
static int
refuse_passphrase(char *passphrase, int size, int is_writing, void *arg)
{
	return 0;
}

/* Reads which authorities are trusted. Returns false, with the reason, if that fails. */
static bool
load_authorities(Tls *tls, SSL_CTX *context)
{
	if (outbox_redis_tls_ca_file[0] == '\0')
		return SSL_CTX_set_default_verify_paths(context) == 1;
	if (!check_is_file(tls, "outbox.redis_tls_ca_file", outbox_redis_tls_ca_file))
		return false;
	if (SSL_CTX_load_verify_locations(context, outbox_redis_tls_ca_file, NULL) == 1)
		return true;
	fail_with_file(tls, "outbox.redis_tls_ca_file");
	return false;
}

/* Reads our certificate and its key, if there is one. Returns false, with the reason, if that fails. */
static bool
load_certificate(Tls *tls, SSL_CTX *context)
{
	if (outbox_redis_tls_cert_file[0] == '\0' && outbox_redis_tls_key_file[0] == '\0')
		return true;
	if (outbox_redis_tls_cert_file[0] == '\0' || outbox_redis_tls_key_file[0] == '\0')
		tls_failure_note(tls->error, "only one of outbox.redis_tls_cert_file and outbox.redis_tls_key_file is set");
	else if (!check_is_file(tls, "outbox.redis_tls_cert_file", outbox_redis_tls_cert_file))
		return false;
	else if (SSL_CTX_use_certificate_chain_file(context, outbox_redis_tls_cert_file) != 1)
		fail_with_file(tls, "outbox.redis_tls_cert_file");
	else if (check_key_file(tls, outbox_redis_tls_key_file))
	{
		tls->shows_certificate = SSL_CTX_use_PrivateKey_file(context, outbox_redis_tls_key_file, SSL_FILETYPE_PEM) == 1;
		if (!tls->shows_certificate)
			fail_with_file(tls, "outbox.redis_tls_key_file");
	}
	return tls->shows_certificate;
}

/*
 * Checks that a file is a regular one, if it exists: OpenSSL would wait for the writer
 * of a pipe. Returns false, with the reason, if it is not.
 */
static bool
check_is_file(Tls *tls, const char *setting, const char *file)
{
	struct stat is;

	if (stat(file, &is) != 0 || S_ISREG(is.st_mode))
		return true;
	tls_failure_note(tls->error, "the file of %s is not a regular file", setting);
	return false;
}

/*
 * Checks that no other user may read the key, by the rules that PostgreSQL has
 * for its own. Returns false, with the reason, if one may.
 */
static bool
check_key_file(Tls *tls, const char *file)
{
	struct stat is;

	if (stat(file, &is) != 0)
		tls_failure_note(tls->error, "could not open the file of outbox.redis_tls_key_file: %s", foreign_text_error(errno));
	else if (!S_ISREG(is.st_mode))
		tls_failure_note(tls->error, "the file of outbox.redis_tls_key_file is not a regular file");
	else if (is.st_uid != geteuid() && is.st_uid != 0)
		tls_failure_note(tls->error, "the file of outbox.redis_tls_key_file must be owned by the database user or root");
	else if ((is.st_uid == geteuid() && (is.st_mode & (S_IRWXG | S_IRWXO)) != 0) ||
			 (is.st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)) != 0)
		tls_failure_note(tls->error, "the file of outbox.redis_tls_key_file has group or world access");
	else
		return true;
	return false;
}

/* Sets the name, or the address, that the certificate of the server must be for. */
static bool
expect_name(Tls *tls)
{
	unsigned char ignored[sizeof(struct in6_addr)];

	if (inet_pton(AF_INET, tls->host, ignored) == 1 || inet_pton(AF_INET6, tls->host, ignored) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), tls->host) == 1;
	SSL_set_hostflags(tls->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(tls->ssl, tls->host) == 1 && SSL_set_tlsext_host_name(tls->ssl, tls->host) == 1;
}

/* Turns what a call of OpenSSL has returned into what ours return; notes what it waits for, or why it failed. */
static int
note_result(Tls *tls, int result, int *event)
{
	int			failure = errno;

	switch (SSL_get_error(tls->ssl, result))
	{
		case SSL_ERROR_NONE:
			return result;
		case SSL_ERROR_WANT_READ:
			*event = WL_SOCKET_READABLE;
			return 0;
		case SSL_ERROR_WANT_WRITE:
			*event = WL_SOCKET_WRITEABLE;
			return 0;
		case SSL_ERROR_SSL:
			fail_with_code(tls, ERR_get_error());
			break;
		case SSL_ERROR_SYSCALL:
			tls_failure_note(tls->error, "%s", failure != 0 ? foreign_text_error(failure) : "the server closed the connection");
			break;
		default:
			tls_failure_note(tls->error, "the server closed the connection");
			break;
	}
	tls->is_broken = true;
	ERR_clear_error();
	return -1;
}

/* Notes what the server has said before it closed the connection, instead of that it did. */
static void
look_for_alert(Tls *tls)
{
	char		ignored;
	int			result = SSL_read(tls->ssl, &ignored, 1);

	if (SSL_get_error(tls->ssl, result) == SSL_ERROR_SSL && ERR_GET_REASON(ERR_peek_error()) > SSL_AD_REASON_OFFSET)
		fail_with_code(tls, ERR_get_error());
	ERR_clear_error();
}

/* Notes that the file of a setting cannot be used. */
static void
fail_with_file(Tls *tls, const char *setting)
{
	tls_failure_note(tls->error, "could not load the file of %s: %s", setting, tls_failure_reason(ERR_get_error()));
	ERR_clear_error();
}

/* Notes an error of the protocol. */
static void
fail_with_code(Tls *tls, unsigned long code)
{
	tls_failure_note_code(tls->error, code, tls->ssl, tls->host, tls->shows_certificate);
}

#else							/* no OpenSSL, no TLS */

struct Tls
{
	char		none;
};

/* The same. Nothing else is called then. */
const char *
tls_why_none(void)
{
	return "TLS is not available: PostgreSQL was built without OpenSSL.";
}

Tls *
tls_open(int socket, const char *host, char *error, size_t size)
{
	strlcpy(error, "PostgreSQL was built without OpenSSL", size);
	return NULL;
}

void
tls_close(Tls *tls)
{
}

int
tls_handshake(Tls *tls)
{
	return -1;
}

int
tls_read(Tls *tls, char *bytes, size_t size)
{
	return -1;
}

int
tls_write(Tls *tls, const char *bytes, size_t size)
{
	return -1;
}

bool
tls_has_unread(const Tls *tls)
{
	return false;
}

int
tls_read_event(const Tls *tls)
{
	return 0;
}

int
tls_write_event(const Tls *tls)
{
	return 0;
}

const char *
tls_error(const Tls *tls)
{
	return "";
}

#endif
