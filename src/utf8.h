/*
 * utf8.h
 *		Whether a text can be converted to UTF-8.
 */
#ifndef OUTBOX_UTF8_H
#define OUTBOX_UTF8_H

extern bool utf8_is_possible(const text *value);

#endif							/* OUTBOX_UTF8_H */
