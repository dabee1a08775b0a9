/*
 * lease.h
 *		Who may publish for this instance.
 */
#ifndef OUTBOX_LEASE_H
#define OUTBOX_LEASE_H

#define LEASE_MS		10000	/* how long it lives in Redis */
#define LEASE_RENEW_MS	3000	/* it is renewed after that, if no batch has
								 * done so */
#define LEASE_OWNER_BYTES 34	/* the server's id, a dot, and its place */
#define LEASE_BYTES		160

extern void lease_init(void);
extern const char *lease_owner(void);
extern const char *lease_value(void);
extern const char *lease_other_owner(void);
extern void lease_note_unseen(void);
extern bool lease_may_be_taken(const char *current, const char *last_owner, char *reason, size_t size);

#endif							/* OUTBOX_LEASE_H */
