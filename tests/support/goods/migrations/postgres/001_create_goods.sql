CREATE TABLE IF NOT EXISTS goods.wares (
    id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    price NUMERIC NOT NULL,
    maker TEXT COLLATE "C",
    design UUID,
    weight NUMERIC,
    image BYTEA NOT NULL,
    seal BYTEA,
    makers JSONB NOT NULL,
    designs JSONB NOT NULL,
    weights JSONB NOT NULL,
    seals JSONB NOT NULL,
    offer JSONB,
    offers JSONB NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT wares_pkey PRIMARY KEY (id),
    CONSTRAINT wares_id_check CHECK (id ~ '^[0-9a-f]{24}$'),
    CONSTRAINT wares_maker_check CHECK (maker ~ '^[0-9a-f]{24}$')
);

CREATE UNIQUE INDEX IF NOT EXISTS uq_wares_design
    ON goods.wares (design) WHERE design IS NOT NULL;

CREATE INDEX IF NOT EXISTS idx_wares_tenant_price
    ON goods.wares (tenant_id, batch, price, id);

CREATE INDEX IF NOT EXISTS idx_wares_tenant_maker
    ON goods.wares (tenant_id, batch, maker, id);

ALTER TABLE goods.wares ENABLE ROW LEVEL SECURITY;
ALTER TABLE goods.wares FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON goods.wares;
CREATE POLICY tenant_isolation ON goods.wares
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON goods.wares TO :"application_role";

CREATE TABLE IF NOT EXISTS goods.stamps (
    ware_id TEXT COLLATE "C" NOT NULL,
    stamp UUID NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    value NUMERIC NOT NULL,
    image BYTEA NOT NULL,
    CONSTRAINT stamps_pkey PRIMARY KEY (ware_id, stamp),
    CONSTRAINT stamps_ware_id_check CHECK (ware_id ~ '^[0-9a-f]{24}$'),
    CONSTRAINT stamps_ware_id_fkey FOREIGN KEY (ware_id) REFERENCES goods.wares (id) ON DELETE CASCADE
);

ALTER TABLE goods.stamps ENABLE ROW LEVEL SECURITY;
ALTER TABLE goods.stamps FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON goods.stamps;
CREATE POLICY tenant_isolation ON goods.stamps
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE EXISTS (SELECT FROM goods.wares AS parent0 WHERE parent0.id = goods.stamps.ware_id) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE EXISTS (SELECT FROM goods.wares AS parent0 WHERE parent0.id = goods.stamps.ware_id) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON goods.stamps TO :"application_role";

CREATE TABLE IF NOT EXISTS goods.crates (
    id UUID NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    price NUMERIC NOT NULL,
    maker TEXT COLLATE "C",
    payload JSONB NOT NULL,
    CONSTRAINT crates_pkey PRIMARY KEY (id),
    CONSTRAINT crates_maker_check CHECK (maker ~ '^[0-9a-f]{24}$')
);

CREATE INDEX IF NOT EXISTS idx_crates_tenant_price
    ON goods.crates (tenant_id, batch, price DESC, id);

ALTER TABLE goods.crates ENABLE ROW LEVEL SECURITY;
ALTER TABLE goods.crates FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS tenant_isolation ON goods.crates;
CREATE POLICY tenant_isolation ON goods.crates
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
           ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true
                ELSE tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')) END);

GRANT SELECT, INSERT, UPDATE, DELETE ON goods.crates TO :"application_role";

GRANT USAGE ON SCHEMA goods TO :"application_role";

GRANT SELECT ON goods.schema_migrations TO :"application_role";
