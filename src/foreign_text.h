/*
 * foreign_text.h
 *		Text from other servers and libraries, as text of this database.
 */
#ifndef OUTBOX_FOREIGN_TEXT_H
#define OUTBOX_FOREIGN_TEXT_H

#include <locale.h>

/* This much of a text is kept, including the terminating zero. */
#define FOREIGN_TEXT_BYTES	256

/* The maximum length of an error of a link to another server. */
#define LINK_ERROR_BYTES	512

extern void foreign_text_copy(char *safe, size_t size, const char *bytes, size_t length);
extern void foreign_text_format(char *safe, size_t size, const char *format, va_list args) pg_attribute_printf(3, 0);
extern locale_t foreign_text_english_begin(void);
extern void foreign_text_english_end(locale_t before);
extern const char *foreign_text_error(int error);
extern const char *foreign_text_lookup_error(int error);

#endif							/* OUTBOX_FOREIGN_TEXT_H */
