/*
 * masked_url.h
 *		The URL of a store as it may be shown.
 */
#ifndef OUTBOX_MASKED_URL_H
#define OUTBOX_MASKED_URL_H

extern char *masked_url(const char *url);

#endif							/* OUTBOX_MASKED_URL_H */
