/*
 * record_view.h
 *		What the views show of records.
 */
#ifndef OUTBOX_RECORD_VIEW_H
#define OUTBOX_RECORD_VIEW_H

#include "nodes/execnodes.h"

extern void record_view_tables(ReturnSetInfo *result);

#endif							/* OUTBOX_RECORD_VIEW_H */
