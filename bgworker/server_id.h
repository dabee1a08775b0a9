/*
 * server_id.h
 *		What tells this data directory from all others.
 */
#ifndef OUTBOX_SERVER_ID_H
#define OUTBOX_SERVER_ID_H

#define SERVER_ID_BYTES	17		/* 16 hexadecimal digits */

extern bool server_id_get(char *id);

#endif							/* OUTBOX_SERVER_ID_H */
