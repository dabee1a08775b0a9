/*
 * key_settings.h
 *		Settings under which the key of a message is printed, and expressions are read.
 */
#ifndef OUTBOX_KEY_SETTINGS_H
#define OUTBOX_KEY_SETTINGS_H

extern bool key_settings_matter(Oid type);
extern int	key_settings_take(void);
extern void key_settings_return(int nest_level);

#endif							/* OUTBOX_KEY_SETTINGS_H */
