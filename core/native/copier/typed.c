#include "copier/typed.h"

#include "copier/packed.h"

#define ID_BYTES 12
#define BINARY_HEAD 5 // length and subtype
#define BIAS 6176
#define EXPONENT_BIT 49
// Half of the digits of a decimal, which fit into 64 bits.
#define HALF_DIGITS 17
#define HALF 100000000000000000ull

__extension__ typedef unsigned __int128 u128;

// ------------------------------------------------------------------------------------- hexadecimal digits

static void hex_text(const u8 *bytes, u32 count, u8 *text) {
  static const char digits[] = "0123456789abcdef";
  for (u32 index = 0; index < count; index++) {
    *text++ = (u8)digits[bytes[index] >> 4];
    *text++ = (u8)digits[bytes[index] & 15];
  }
}

int hex_digit(u8 byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static int hex_bytes(const u8 *text, u32 count, u8 *bytes) {
  for (u32 index = 0; index < count; index++) {
    int high = hex_digit(text[2 * index]), low = hex_digit(text[2 * index + 1]);
    if (high < 0 || low < 0) return 0;
    bytes[index] = (u8)(high << 4 | low);
  }
  return 1;
}

// Groups of digits of a UUID: how many bytes each stands for.
static const u8 groups[] = {4, 2, 2, 2, 6};

void uuid_text(const u8 *bytes, u8 text[UUID_TEXT]) {
  for (u32 group = 0; group < sizeof groups; group++) {
    if (group) *text++ = '-';
    hex_text(bytes, groups[group], text);
    bytes += groups[group];
    text += 2 * groups[group];
  }
}

int uuid_bytes(Text text, u8 bytes[UUID_BYTES]) {
  const u8 *at = text.bytes;
  if (text.size != UUID_TEXT) return 0;
  for (u32 group = 0; group < sizeof groups; group++) {
    if (group && *at++ != '-') return 0;
    if (!hex_bytes(at, groups[group], bytes)) return 0;
    bytes += groups[group];
    at += 2 * groups[group];
  }
  return 1;
}

// ------------------------------------------------------------------------------------------------- base64

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void add_base64(Buffer *out, const u8 *bytes, u32 size) {
  if (!buffer_need(out, (size_t)size / 3 * 4 + 4)) return;
  u8 *to = out->bytes + out->size;
  u32 at = 0;
  for (; size - at >= 3; at += 3) {
    u32 three = (u32)bytes[at] << 16 | (u32)bytes[at + 1] << 8 | bytes[at + 2];
    for (int shift = 18; shift >= 0; shift -= 6) *to++ = (u8)letters[three >> shift & 63];
  }
  if (at < size) {
    u32 rest = (u32)bytes[at] << 16 | (size - at == 2 ? (u32)bytes[at + 1] << 8 : 0);
    *to++ = (u8)letters[rest >> 18];
    *to++ = (u8)letters[rest >> 12 & 63];
    *to++ = size - at == 2 ? (u8)letters[rest >> 6 & 63] : '=';
    *to++ = '=';
  }
  out->size = (size_t)(to - out->bytes);
}

// The letters from `+` to `z` by their places in that order; a table, because branches would take longer than all else.
#define NO_LETTER 64
static const u8 places[] = {
    62, 64, 64, 64, 63, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 64, 64, 64, 64, 64, 64, 64, 0,  1,  2,  3,  4,
    5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 64, 64, 64, 64, 64, 64,
    26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
};

static inline u32 letter(u8 byte) {
  u32 place = (u32)byte - '+';
  return place < sizeof places ? places[place] : NO_LETTER;
}

static u32 padding(Text text) {
  if (text.size < 2 || text.bytes[text.size - 1] != '=') return 0;
  return text.bytes[text.size - 2] == '=' ? 2 : 1;
}

i64 base64_size(Text text) { return text.size % 4 ? -1 : (i64)text.size / 4 * 3 - padding(text); }

int base64_bytes(Text text, Buffer *out) {
  i64 size = base64_size(text);
  u32 pad = padding(text), bits = 0, held = 0;
  if (size < 0 || !buffer_need(out, (size_t)size)) return 0;
  u8 *to = out->bytes + out->size;
  for (u32 at = 0; at < text.size - pad; at++) {
    u32 found = letter(text.bytes[at]);
    if (found == NO_LETTER) return 0;
    held = held << 6 | found;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    *to++ = (u8)(held >> bits);
    held &= (1u << bits) - 1;
  }
  // Bits behind the last byte would be another text of the same bytes.
  if (held) return 0;
  out->size += (size_t)size;
  return 1;
}

// ----------------------------------------------------------------------------------------------- decimals

static int decimal_text(const u8 *bytes, Buffer *out) {
  u64 low = (u64)read_i64(bytes), high = (u64)read_i64(bytes + 8);
  i64 exponent = (i64)(high << 1 >> (EXPONENT_BIT + 1)) - BIAS;
  u128 value = (u128)(high & (((u64)1 << EXPONENT_BIT) - 1)) << 64 | low;
  // With both of these bits set it is not finite, or no client writes it.
  if ((high >> 61 & 3) == 3 || exponent > 0 || exponent < -MOST_DIGITS) return 0;
  if (value >= (u128)HALF * HALF || (high >> 63 && !value)) return 0;
  u8 text[2 * MOST_DIGITS];
  u32 at = sizeof text, scale = (u32)-exponent;
  u64 rest = (u64)(value % HALF), upper = (u64)(value / HALF);
  for (u32 count = 0; rest || upper || count <= scale; count++) {
    if (count == HALF_DIGITS) {
      rest = upper;
      upper = 0;
    }
    if (scale && count == scale) text[--at] = '.';
    text[--at] = (u8)('0' + rest % 10);
    rest /= 10;
  }
  if (high >> 63) text[--at] = '-';
  buffer_add(out, text + at, sizeof text - at);
  return 1;
}

// The digits of a text as a number, and how many are behind its point; 0 for another text than a number has.
static int decimal_digits(Text text, u128 *value, u32 *scale) {
  const u8 *point = memchr(text.bytes, '.', text.size);
  u32 whole = point ? (u32)(point - text.bytes) : text.size;
  *value = 0;
  *scale = point ? text.size - whole - 1 : 0;
  if (!whole || (point && !*scale) || *scale > MOST_DIGITS || (*text.bytes == '0' && whole > 1)) return 0;
  for (u32 at = 0; at < text.size; at++) {
    if (at == whole) continue;
    u32 digit = (u32)text.bytes[at] - '0';
    if (digit > 9 || *value >= (u128)HALF * HALF / 10) return 0;
    *value = *value * 10 + digit;
  }
  return 1;
}

static u8 decimal_value(Text text, Buffer *out) {
  u128 value;
  u32 scale;
  u32 negative = text.size && *text.bytes == '-';
  if (!decimal_digits((Text){text.bytes + negative, text.size - negative}, &value, &scale)) return 0;
  if (negative && !value) return 0;
  u64 high = (u64)negative << 63 | (u64)(BIAS - scale) << EXPONENT_BIT | (u64)(value >> 64);
  buffer_add_i64(out, (i64)(u64)value);
  buffer_add_i64(out, (i64)high);
  return BSON_DECIMAL;
}

// ------------------------------------------------------------------------------------------------- values

static int is_binary(const Element *element, u8 subtype) {
  return element->type == BSON_BINARY && element->bytes[4] == subtype;
}

static int id_text(const Element *element, Buffer *out) {
  u8 text[2 * ID_BYTES];
  if (element->type != BSON_ID) return 0;
  hex_text(element->bytes, ID_BYTES, text);
  buffer_add(out, text, sizeof text);
  return 1;
}

static int binary_uuid_text(const Element *element, Buffer *out) {
  u8 text[UUID_TEXT];
  if (!is_binary(element, UUID_SUBTYPE) || element->size != BINARY_HEAD + UUID_BYTES) return 0;
  uuid_text(element->bytes + BINARY_HEAD, text);
  buffer_add(out, text, sizeof text);
  return 1;
}

static int bytes_text(const Element *element, Buffer *out) {
  if (!is_binary(element, BYTES_SUBTYPE)) return 0;
  add_base64(out, element->bytes + BINARY_HEAD, element->size - BINARY_HEAD);
  return 1;
}

int typed_text(const Node *node, const Element *element, Buffer *out) {
  switch (node->kind) {
    case NODE_OBJECT_ID: return id_text(element, out);
    case NODE_UUID: return binary_uuid_text(element, out);
    case NODE_DECIMAL: return element->type == BSON_DECIMAL && decimal_text(element->bytes, out);
    default: return bytes_text(element, out);
  }
}

u8 bson_add_binary(Buffer *out, u8 subtype, const u8 *bytes, u32 size) {
  buffer_add_u32(out, size);
  buffer_add_byte(out, subtype);
  buffer_add(out, bytes, size);
  return BSON_BINARY;
}

static u8 id_value(Text text, Buffer *out) {
  u8 bytes[ID_BYTES];
  if (text.size != 2 * ID_BYTES || !hex_bytes(text.bytes, ID_BYTES, bytes)) return 0;
  buffer_add(out, bytes, sizeof bytes);
  return BSON_ID;
}

static u8 bytes_value(Text text, Buffer *out) {
  i64 size = base64_size(text);
  if (size < 0) return 0;
  bson_add_binary(out, BYTES_SUBTYPE, NULL, 0);
  if (out->failed) return 0;
  write_u32(out->bytes + out->size - BINARY_HEAD, (u32)size);
  return base64_bytes(text, out) ? BSON_BINARY : 0;
}

u8 typed_value(const Node *node, Text text, Buffer *out) {
  u8 bytes[UUID_BYTES];
  switch (node->kind) {
    case NODE_OBJECT_ID: return id_value(text, out);
    case NODE_UUID: return uuid_bytes(text, bytes) ? bson_add_binary(out, UUID_SUBTYPE, bytes, UUID_BYTES) : 0;
    case NODE_DECIMAL: return decimal_value(text, out);
    default: return bytes_value(text, out);
  }
}
