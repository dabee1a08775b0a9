/*
 * data_directory.h
 *		The id of this data directory.
 */
#ifndef OUTBOX_DATA_DIRECTORY_H
#define OUTBOX_DATA_DIRECTORY_H

#define DATA_DIRECTORY_ID_BYTES	17	/* 16 hexadecimal digits */

extern bool data_directory_get_id(char *id);

#endif							/* OUTBOX_DATA_DIRECTORY_H */
