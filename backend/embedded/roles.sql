-- Run by a superuser in Parley's own database, as often as you like: the same two roles on every kind of installation.
--   parley_owner  owns the tables; only migrations use it
--   parley_app    reads and writes rows, cannot change a table; everything else uses it
DO $$
BEGIN
    BEGIN
        CREATE ROLE parley_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    BEGIN
        CREATE ROLE parley_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
    EXECUTE format('ALTER DATABASE %I OWNER TO parley_owner', current_database());
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO parley_app', current_database());
END
$$;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO parley_app;

-- Tables that a later migration creates come with these grants.
ALTER DEFAULT PRIVILEGES FOR ROLE parley_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO parley_app;
ALTER DEFAULT PRIVILEGES FOR ROLE parley_owner IN SCHEMA public
    GRANT USAGE, SELECT ON SEQUENCES TO parley_app;
