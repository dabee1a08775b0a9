/*
 * convertible.h
 *		Whether a text can be converted to UTF-8.
 */
#ifndef OUTBOX_CONVERTIBLE_H
#define OUTBOX_CONVERTIBLE_H

extern bool is_convertible(const text *value);

#endif							/* OUTBOX_CONVERTIBLE_H */
