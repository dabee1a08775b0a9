/*
 * foreign_text.h
 *		What other servers say, as text of this database.
 */
#ifndef OUTBOX_FOREIGN_TEXT_H
#define OUTBOX_FOREIGN_TEXT_H

/* So much of one text is kept, with the end of the string. */
#define FOREIGN_TEXT_BYTES	256

extern void foreign_text_copy(char *safe, size_t size, const char *bytes, size_t length);
extern void foreign_text_format(char *safe, size_t size, const char *format, va_list args) pg_attribute_printf(3, 0);

#endif							/* OUTBOX_FOREIGN_TEXT_H */
