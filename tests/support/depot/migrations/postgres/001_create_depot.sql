CREATE TABLE IF NOT EXISTS depot.parcels (
    parcel_id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    label TEXT COLLATE "C",
    amount BIGINT NOT NULL,
    checked_at TIMESTAMPTZ(3),
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT parcels_pkey PRIMARY KEY (parcel_id)
);

CREATE UNIQUE INDEX IF NOT EXISTS uq_parcels_label
    ON depot.parcels (label) WHERE label IS NOT NULL;

CREATE INDEX IF NOT EXISTS idx_parcels_tenant_amount
    ON depot.parcels (tenant_id, batch, amount, parcel_id);

ALTER TABLE depot.parcels ENABLE ROW LEVEL SECURITY;
ALTER TABLE depot.parcels FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON depot.parcels;
CREATE POLICY tenant_isolation ON depot.parcels
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON depot.parcels TO :"application_role";

CREATE TABLE IF NOT EXISTS depot.scans (
    parcel_id TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    CONSTRAINT scans_pkey PRIMARY KEY (parcel_id, sequence),
    CONSTRAINT scans_parcel_id_fkey FOREIGN KEY (parcel_id) REFERENCES depot.parcels (parcel_id) ON DELETE CASCADE
);

ALTER TABLE depot.scans ENABLE ROW LEVEL SECURITY;
ALTER TABLE depot.scans FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON depot.scans;
CREATE POLICY tenant_isolation ON depot.scans
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE EXISTS (SELECT FROM depot.parcels AS parent0 WHERE parent0.parcel_id = depot.scans.parcel_id) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE EXISTS (SELECT FROM depot.parcels AS parent0 WHERE parent0.parcel_id = depot.scans.parcel_id) END);

GRANT SELECT, INSERT ON depot.scans TO :"application_role";

GRANT USAGE ON SCHEMA depot TO :"application_role";

GRANT SELECT ON depot.schema_migrations TO :"application_role";
