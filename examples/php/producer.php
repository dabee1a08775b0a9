#!/usr/bin/env php
<?php
/*
 * Handles incoming messages: each becomes an order and an event, in one transaction.
 *
 *     producer.php postgresql://USER:PASSWORD@HOST:PORT/DATABASE < messages
 *
 * Reads messages from standard input, one to a line: id, customer, amount. A real
 * program would get them from its broker and acknowledge each when handle() has
 * returned. Prints for each message whether it was processed, a duplicate, or refused.
 */

function connect(array $part): PDO
{
    $dsn = "pgsql:host={$part['host']};port={$part['port']};dbname=" . ltrim($part['path'], '/');
    // A transaction pooler does not carry prepared statements over.
    return new PDO($dsn, $part['user'], $part['pass'] ?? null, [PDO::PGSQL_ATTR_DISABLE_PREPARES => true]);
}

function handle(PDO $connection, string $id, string $customer, string $amount): string
{
    $connection->beginTransaction();
    // The endpoint is an argument and not a SET: a pooler may give the session to others.
    $is_new = run($connection, "SELECT outbox_begin(?, endpoint => 'orders')", $id)->fetchColumn();
    if ($is_new) {
        run($connection, 'INSERT INTO orders (customer, amount) VALUES (?, ?::integer)', $customer, $amount);
        run(
            $connection,
            "SELECT outbox_enqueue('order-events', jsonb_build_object('customer', ?::text, 'amount', ?::integer), ?::jsonb)",
            $customer,
            $amount,
            json_encode(['type' => 'OrderPlaced'])
        );
        run($connection, 'SELECT outbox_commit()');
    }
    $connection->commit();
    return $is_new ? 'processed' : 'duplicate';
}

function run(PDO $connection, string $sql, string ...$values): PDOStatement
{
    $statement = $connection->prepare($sql);
    $statement->execute($values);
    return $statement;
}

/* Whether the connection is gone; then it is safe to begin again with the same id. */
function is_lost(PDOException $error): bool
{
    return preg_match('/^(08|57P)/', $error->getCode()) || $error->getCode() === 'HY000' || is_int($error->getCode());
}

/* Returns "refused" for a message that no retry will help, null to try again. */
function after_error(PDOException $error, bool $clashed): ?string
{
    $state = $error->getCode();
    if (is_lost($error) || $state === '40001' || $state === '40P01') {
        return null; // another transaction was faster; nothing has happened
    }
    if ($state === '23505' && !$clashed) {
        return null; // perhaps a copy was processed meanwhile: then the next try is a duplicate
    }
    if (preg_match('/^2[23]/', $state)) {
        return 'refused'; // poison: to be put where somebody will look at it
    }
    throw $error;
}

$part = parse_url($argv[1] ?? '');
if (!isset($part['user'], $part['host'], $part['port'], $part['path'])) {
    fwrite(STDERR, "usage: producer.php postgresql://USER:PASSWORD@HOST:PORT/DATABASE < messages\n");
    exit(1);
}

$connection = null;
while (($line = fgets(STDIN)) !== false) {
    $message = explode(' ', trim($line));
    $result = null;
    $clashed = false;
    while ($result === null) {
        try {
            $connection ??= connect($part);
            $result = handle($connection, ...$message);
        } catch (PDOException $error) {
            $result = after_error($error, $clashed);
            $clashed = $clashed || $error->getCode() === '23505';
            if (is_lost($error)) {
                $connection = null;
                fwrite(STDERR, "trying again: {$error->getMessage()}\n");
                usleep(100000);
            } else {
                $connection->rollBack();
            }
        }
    }
    echo "$message[0] $result\n";
}
