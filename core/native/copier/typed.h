// ObjectIds, UUIDs, decimals and bytes: values of BSON, and texts in packed rows and in JSON. Only what has one form on
// both sides is taken.
#ifndef TWINSTORE_COPIER_TYPED_H
#define TWINSTORE_COPIER_TYPED_H

#include "copier/checker.h"

#define UUID_BYTES 16
#define UUID_TEXT 36
#define BYTES_SUBTYPE 0
#define UUID_SUBTYPE 4
// Digits of a decimal, and of those behind its point; what has more goes the exact way.
#define MOST_DIGITS 34

static inline int is_typed(const Node *node) { return node->kind >= NODE_OBJECT_ID; }

// Adds the text of a value; 0 where it is declined.
int typed_text(const Node *node, const Element *element, Buffer *out);
// Adds the value of a text and answers its type, 0 for a text that typed_text does not write.
u8 typed_value(const Node *node, Text text, Buffer *out);
u8 bson_add_binary(Buffer *out, u8 subtype, const u8 *bytes, u32 size);

// The number of a lower-case digit, -1 for any other byte.
int hex_digit(u8 byte);
void uuid_text(const u8 *bytes, u8 text[UUID_TEXT]);
int uuid_bytes(Text text, u8 bytes[UUID_BYTES]);
// How many bytes a text in standard base64 stands for, -1 for what no encoder writes; and adds them.
i64 base64_size(Text text);
int base64_bytes(Text text, Buffer *out);

#endif
