/*
 * english.h
 *		What the C library and libpq say of errors, in English.
 */
#ifndef OUTBOX_ENGLISH_H
#define OUTBOX_ENGLISH_H

#include <locale.h>

extern locale_t english_begin(void);
extern void english_end(locale_t before);
extern const char *english_error(int error);
extern const char *english_lookup_error(int error);

#endif							/* OUTBOX_ENGLISH_H */
