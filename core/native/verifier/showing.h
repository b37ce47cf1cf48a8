// Values of documents as JSON.
#ifndef TWINSTORE_VERIFIER_SHOWING_H
#define TWINSTORE_VERIFIER_SHOWING_H

#include "verifier/bson.h"
#include "verifier/document_form.h"

// Of a UUID, which has the most.
#define SHOW_DIGITS 36

// What the walk of one document needs: the elements of the objects that it stands in.
typedef struct {
  const DocumentForm *form;
  Buffer *out;
  Element *elements; // SCAN_NAMES of them
  size_t used;
} Shower;

// Each answers 0 for what is declined.
// The digits of an ObjectId or UUID; `text` has room for them. NULL: any other element.
Span show_digits(u8 kind, const Element *element, u8 text[SHOW_DIGITS]);
int show_value(Shower *shower, const Element *element, u32 place, int depth);
// Reads the members of an object, sorts them by name and finds doubles.
int show_collect(Shower *shower, Elements *elements);
int show_sort(Element *elements, size_t count);
int show_order(Span left, Span right);
// Whether a number is the name of an item; the client writes no other.
int show_is_number(Span name, u32 number);
// Whether a client that reads a value of any type and writes it again writes the same bytes.
int show_returns(Shower *shower, const Element *element, int depth);

#endif
