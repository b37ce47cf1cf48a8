CREATE TABLE IF NOT EXISTS library.books (
    id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    title TEXT COLLATE "C" NOT NULL,
    bought_at TIMESTAMPTZ(3) NOT NULL,
    gone_at TIMESTAMPTZ(3),
    CONSTRAINT books_pkey PRIMARY KEY (id)
);

CREATE INDEX IF NOT EXISTS idx_books_tenant_bought
    ON library.books (tenant_id, bought_at DESC, id);

CREATE INDEX IF NOT EXISTS idx_books_gone
    ON library.books (gone_at, id) WHERE gone_at IS NOT NULL;

ALTER TABLE library.books ENABLE ROW LEVEL SECURITY;
ALTER TABLE library.books FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON library.books;
CREATE POLICY tenant_isolation ON library.books
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON library.books TO :"application_role";

CREATE TABLE IF NOT EXISTS library.copies (
    book_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    tag TEXT COLLATE "C" NOT NULL,
    condition TEXT COLLATE "C" NOT NULL,
    shelf JSONB,
    notes JSONB NOT NULL,
    CONSTRAINT copies_pkey PRIMARY KEY (book_id, number),
    CONSTRAINT copies_condition_check CHECK (condition IN ('good', 'worn', 'lost')),
    CONSTRAINT copies_book_id_fkey FOREIGN KEY (book_id) REFERENCES library.books (id) ON DELETE CASCADE,
    CONSTRAINT uq_copies_tag UNIQUE (tag)
);

ALTER TABLE library.copies ENABLE ROW LEVEL SECURITY;
ALTER TABLE library.copies FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON library.copies;
CREATE POLICY tenant_isolation ON library.copies
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE EXISTS (SELECT FROM library.books AS parent0 WHERE parent0.id = library.copies.book_id) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE EXISTS (SELECT FROM library.books AS parent0 WHERE parent0.id = library.copies.book_id) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON library.copies TO :"application_role";

CREATE TABLE IF NOT EXISTS library.subjects (
    scheme TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    title TEXT COLLATE "C" NOT NULL,
    CONSTRAINT subjects_pkey PRIMARY KEY (scheme, number)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON library.subjects TO :"application_role";

GRANT USAGE ON SCHEMA library TO :"application_role";

GRANT SELECT ON library.schema_migrations TO :"application_role";
