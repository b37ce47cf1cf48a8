CREATE TABLE IF NOT EXISTS depot.tickets (
    number BIGINT NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    _updated_at TIMESTAMPTZ(3),
    __v BIGINT NOT NULL,
    _class TEXT COLLATE "C",
    seat_row TEXT COLLATE "C",
    it_s__50__ TEXT COLLATE "C",
    _price BIGINT NOT NULL,
    hall_place TEXT COLLATE "C",
    _fares JSONB NOT NULL,
    extra JSONB NOT NULL DEFAULT '{}',
    CONSTRAINT tickets_pkey PRIMARY KEY (number)
);

CREATE INDEX IF NOT EXISTS idx_tickets_tenant_updated
    ON depot.tickets (tenant_id, _updated_at, number);

ALTER TABLE depot.tickets ENABLE ROW LEVEL SECURITY;
ALTER TABLE depot.tickets FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON depot.tickets;
CREATE POLICY tenant_isolation ON depot.tickets
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON depot.tickets TO :"application_role";

CREATE TABLE IF NOT EXISTS depot.stubs (
    ticket BIGINT NOT NULL,
    gate TEXT COLLATE "C" NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    checked_at TIMESTAMPTZ(3),
    others JSONB NOT NULL DEFAULT '{}',
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT stubs_pkey PRIMARY KEY (ticket, gate),
    CONSTRAINT stubs_ticket_fkey FOREIGN KEY (ticket) REFERENCES depot.tickets (number) ON DELETE CASCADE
);

ALTER TABLE depot.stubs ENABLE ROW LEVEL SECURITY;
ALTER TABLE depot.stubs FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON depot.stubs;
CREATE POLICY tenant_isolation ON depot.stubs
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE EXISTS (SELECT FROM depot.tickets AS parent0 WHERE parent0.number = depot.stubs.ticket) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE EXISTS (SELECT FROM depot.tickets AS parent0 WHERE parent0.number = depot.stubs.ticket) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON depot.stubs TO :"application_role";
