#!/usr/bin/env ruby
# Handles incoming messages: each becomes an order and an event, in one transaction.
#
#     producer.rb URL-OF-POSTGRESQL < messages
#
# Reads messages from standard input, one to a line: id, customer, amount. A real
# program would get them from its broker and acknowledge each when handle has
# returned. Prints for each message whether it was processed, a duplicate, or refused.

require 'pg'

def handle(connection, id, customer, amount)
  connection.transaction do
    # The endpoint is an argument and not a SET: a pooler may give the session to others.
    is_new = connection.exec_params("SELECT outbox_begin($1, endpoint => 'orders')", [id]).getvalue(0, 0) == 't'
    next 'duplicate' unless is_new

    connection.exec_params('INSERT INTO orders (customer, amount) VALUES ($1, $2::integer)', [customer, amount])
    connection.exec_params(
      "SELECT outbox_enqueue('order-events', jsonb_build_object('customer', $1::text, 'amount', $2::integer), $3::jsonb)",
      [customer, amount, '{"type": "OrderPlaced"}']
    )
    connection.exec('SELECT outbox_commit()')
    'processed'
  end
end

# Returns 'refused' for a message that no retry will help, nil to try again.
def after_error(error, clashed)
  case error
  when PG::TRSerializationFailure, PG::TRDeadlockDetected
    nil # another transaction was faster; nothing has happened
  when PG::UniqueViolation
    # Perhaps a copy was processed meanwhile: then the next try is a duplicate.
    clashed ? 'refused' : nil
  when PG::DataException, PG::IntegrityConstraintViolation
    'refused' # poison: to be put where somebody will look at it
  when PG::ConnectionBad, PG::UnableToSend, PG::AdminShutdown, PG::CrashShutdown, PG::CannotConnectNow, PG::ConnectionException
    nil # the connection was lost: with the same id it is safe to begin again
  else
    raise error
  end
end

abort 'usage: producer.rb URL-OF-POSTGRESQL < messages' if ARGV.length != 1

connection = nil
$stdin.each_line do |line|
  message = line.split
  result = nil
  clashed = false
  while result.nil?
    begin
      connection ||= PG.connect(ARGV[0])
      result = handle(connection, *message)
    rescue PG::Error => e
      result = after_error(e, clashed)
      clashed ||= e.is_a?(PG::UniqueViolation)
      if connection.nil? || connection.finished? || connection.status != PG::CONNECTION_OK
        connection = nil
        warn "trying again: #{e.message}"
        sleep 0.1
      end
    end
  end
  puts "#{message[0]} #{result}"
  $stdout.flush
end
