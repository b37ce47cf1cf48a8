ALTER TABLE scheduler.triggers ADD COLUMN IF NOT EXISTS claimed_by TEXT COLLATE "C";

ALTER TABLE scheduler.triggers ADD COLUMN IF NOT EXISTS claimed_until TIMESTAMPTZ(3);

ALTER TABLE scheduler.triggers ADD COLUMN IF NOT EXISTS claim_fence BIGINT;
