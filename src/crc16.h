/*
 * crc16.h
 *		CRC-16/XMODEM.
 */
#ifndef OUTBOX_CRC16_H
#define OUTBOX_CRC16_H

extern uint16 crc16(const char *bytes, size_t size);

#endif							/* OUTBOX_CRC16_H */
