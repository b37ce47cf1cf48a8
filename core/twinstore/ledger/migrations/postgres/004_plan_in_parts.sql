-- Ranges are planned in several transactions: a job names the entities of which all ranges are there. A range whose
-- workers died is cut in two, which suspicion tells. A coarse one is cut by the worker that takes it. A later run finds
-- by under and noted what it has to look at again, without the tallies.

ALTER TABLE twinstore.jobs ADD COLUMN IF NOT EXISTS cut TEXT[] COLLATE "C" NOT NULL DEFAULT '{}';
ALTER TABLE twinstore.ranges ADD COLUMN IF NOT EXISTS suspicion TEXT COLLATE "C"
    CONSTRAINT ranges_suspicion_check CHECK (suspicion IN ('part', 'row'));
ALTER TABLE twinstore.ranges ADD COLUMN IF NOT EXISTS under TEXT COLLATE "C";
ALTER TABLE twinstore.ranges ADD COLUMN IF NOT EXISTS noted BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE twinstore.ranges ADD COLUMN IF NOT EXISTS coarse BOOLEAN NOT NULL DEFAULT false;
