// Values as JSON, as the comparison writes them. Where they answer: 0 for what no driver writes.
#ifndef TWINSTORE_VERIFIER_VALUES_H
#define TWINSTORE_VERIFIER_VALUES_H

#include "verifier/verifier.h"

int scan_text(Buffer *out, const u8 *text, size_t size);
void scan_integer(Buffer *out, i64 value);
int scan_fraction(Buffer *out, double value);
int scan_instant(Buffer *out, i64 milliseconds);

// The bytes of one character beyond ASCII; 0 where it is no UTF-8.
size_t scan_character(const u8 *text, size_t size);

// Days since 1970 of a day of the calendar.
i64 scan_days(u32 year, u32 month, u32 day);

#endif
