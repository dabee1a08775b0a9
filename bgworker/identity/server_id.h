/*
 * server_id.h
 *		The id of this data directory.
 */
#ifndef OUTBOX_SERVER_ID_H
#define OUTBOX_SERVER_ID_H

#define SERVER_ID_BYTES	17		/* 16 hexadecimal digits */

extern bool server_id_get(char *id);

#endif							/* OUTBOX_SERVER_ID_H */
