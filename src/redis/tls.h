/*
 * tls.h
 *		TLS on a connected socket.
 */
#ifndef OUTBOX_TLS_H
#define OUTBOX_TLS_H

typedef struct Tls Tls;

extern const char *tls_why_none(void);
extern Tls *tls_open(int socket, const char *host, char *error, size_t size);
extern void tls_close(Tls *tls);

extern int	tls_handshake(Tls *tls);
extern int	tls_read(Tls *tls, char *bytes, size_t size);
extern int	tls_write(Tls *tls, const char *bytes, size_t size);
extern bool tls_has_unread(const Tls *tls);
extern int	tls_read_event(const Tls *tls);
extern int	tls_write_event(const Tls *tls);
extern const char *tls_error(const Tls *tls);

#endif							/* OUTBOX_TLS_H */
