-- The ledger of copies holds keys of all tenants, and of what cannot be moved the documents. It belongs to no
-- tenant, so who acts for one neither sees nor writes a row of it: only what works in system scope does, as a
-- copy does.
-- Not forced: the owner may look at a copy with a tool of their own. The setting is read in a sub-select, which
-- the server evaluates once per statement, not once per row. CASE instead of a comparison: the planner would
-- expect one row of two hundred, and read a whole table instead of an index.

ALTER TABLE twinstore.jobs ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS system_scope ON twinstore.jobs;
CREATE POLICY system_scope ON twinstore.jobs
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END);

ALTER TABLE twinstore.workers ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS system_scope ON twinstore.workers;
CREATE POLICY system_scope ON twinstore.workers
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END);

ALTER TABLE twinstore.ranges ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS system_scope ON twinstore.ranges;
CREATE POLICY system_scope ON twinstore.ranges
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END);

ALTER TABLE twinstore.quarantine ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS system_scope ON twinstore.quarantine;
CREATE POLICY system_scope ON twinstore.quarantine
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END);

ALTER TABLE twinstore.conflicts ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS system_scope ON twinstore.conflicts;
CREATE POLICY system_scope ON twinstore.conflicts
    USING (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END)
    WITH CHECK (CASE (SELECT current_setting('app.tenant_id', true)) WHEN 'system' THEN true ELSE false END);
