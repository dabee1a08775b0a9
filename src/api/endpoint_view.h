/*
 * endpoint_view.h
 *		The records in custom record tables, for the view outbox.records.
 */
#ifndef OUTBOX_ENDPOINT_VIEW_H
#define OUTBOX_ENDPOINT_VIEW_H

#include "nodes/execnodes.h"

extern void endpoint_view_records(ReturnSetInfo *result);

#endif							/* OUTBOX_ENDPOINT_VIEW_H */
